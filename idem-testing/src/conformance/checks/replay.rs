//! Checks of the recorded results that duplicates get.

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Checked, Trial, print_of, same, that, value};
use idem_core::protocol::{
    ClaimAnswer, CompleteAnswer, ReleaseCause, State, StoredResult, Tombstone, Verdict,
};

pub(crate) async fn a_value_is_replayed(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.take(&key).await?;
    same("complete", t.complete(&held, b"receipt").await?, CompleteAnswer::Done)?;
    let replay = t.replay(&key).await?;
    same("verdict", replay.verdict, Verdict::Completed)?;
    same("result", replay.result, value("receipt"))?;
    same("attempt", replay.attempt, 1)?;
    same("state", t.record(&key).await?.state, State::Completed)
}

pub(crate) async fn a_terminal_error_is_replayed(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.take(&key).await?;
    let request = held.completion("declined").with_verdict(Verdict::Failed);
    same("complete", t.complete_with(&key, &request).await?, CompleteAnswer::Done)?;
    let replay = t.replay(&key).await?;
    same("verdict", replay.verdict, Verdict::Failed)?;
    same("result", replay.result, value("declined"))?;
    same("state", t.record(&key).await?.state, State::Failed)
}

pub(crate) async fn a_replay_tells_when_the_result_was_recorded(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.take(&key).await?;
    t.pass(t.short()).await;
    t.complete(&held, b"r").await?;
    let record = t.record(&key).await?;
    let first = t.replay(&key).await?;
    same("completed_at", Some(first.completed_at), record.completed_at)?;
    let passed = first.completed_at.since(record.created_at);
    that(passed >= t.short(), "it was recorded before it was completed")?;
    that(!t.is_exact() || passed == t.short(), "it was recorded after it was completed")?;
    t.pass(t.short()).await;
    same("completed_at, later", t.replay(&key).await?.completed_at, first.completed_at)
}

pub(crate) async fn every_replay_is_the_same_and_changes_nothing(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring(&key, Stage::Completed).await?;
    let before = t.get(&key).await?;
    let first = t.replay(&key).await?;
    for _ in 0..20 {
        same("replay", t.replay(&key).await?, first.clone())?;
    }
    t.unchanged(&key, &before).await
}

pub(crate) async fn each_tombstone_is_replayed_as_what_it_is(t: &Trial) -> Checked {
    for tombstone in [Tombstone::TooLarge, Tombstone::NotEncodable] {
        for verdict in [Verdict::Completed, Verdict::Failed] {
            let key = t.key(format!("{tombstone:?} {verdict:?}"))?;
            let held = t.take(&key).await?;
            let result = StoredResult::Tombstone(tombstone);
            t.complete_with(&key, &held.completion("").with_verdict(verdict).with_result(result.clone()))
                .await?;
            let replay = t.replay(&key).await?;
            same("result", replay.result, result)?;
            same("verdict", replay.verdict, verdict)?;
        }
    }
    Ok(())
}

pub(crate) async fn a_replay_tells_which_attempt_made_the_result(t: &Trial) -> Checked {
    let key = t.key("a")?;
    for _ in 0..2 {
        let held = t.take(&key).await?;
        t.release(&held, ReleaseCause::Failed).await?;
    }
    let third = t.take(&key).await?;
    t.complete(&third, b"r").await?;
    same("attempt", t.replay(&key).await?.attempt, 3)
}

pub(crate) async fn a_replay_is_given_whatever_the_claimant_asks_for(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.bring(&key, Stage::Completed).await?;
    let own = t.ask().with_owner(held.owner);
    let fingerprinted = t.ask().with_fingerprint(Some(print_of(1)));
    for request in [t.ask_short(), t.ask_in_doubt(), t.ask_at_most(1), own, fingerprinted] {
        let answer = t.claim(&key, &request).await?;
        let result = match answer {
            ClaimAnswer::Replay(replay) => Some(replay.result),
            _ => None,
        };
        same("result", result, Some(value("first")))?;
    }
    Ok(())
}

pub(crate) async fn a_result_of_a_takeover_is_replayed_to_the_one_taken_over(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let slow = t.bring(&key, Stage::Lapsed).await?;
    let next = t.take(&key).await?;
    t.complete(&next, b"second").await?;
    let answer = t.claim(&key, &t.ask().with_owner(slow.owner)).await?;
    let result = match answer {
        ClaimAnswer::Replay(replay) => Some(replay.result),
        _ => None,
    };
    same("result", result, Some(value("second")))
}
