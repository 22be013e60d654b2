//! Checks of an operator's decision on a key in doubt.

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Checked, LONG, Trial, print_of, same, that, value};
use idem_core::protocol::{
    ClaimAnswer, CompleteAnswer, Owner, ReleaseAnswer, ReleaseCause, RenewAnswer, Resolution, ResolveAnswer,
    Seen, State, StoredResult, Tombstone, Verdict,
};

fn words() -> [Resolution; 3] {
    [
        Resolution::Record(Verdict::Completed, value("word")),
        Resolution::Record(Verdict::Failed, value("word")),
        Resolution::Release,
    ]
}

pub(crate) async fn an_operator_records_a_result(t: &Trial) -> Checked {
    for verdict in [Verdict::Completed, Verdict::Failed] {
        let key = t.key(format!("{verdict:?}"))?;
        t.bring(&key, Stage::InDoubt).await?;
        let word = Resolution::Record(verdict, value("word"));
        same("resolve", t.resolve(&key, &word).await?, ResolveAnswer::Resolved)?;
        let replay = t.replay(&key).await?;
        same("verdict", replay.verdict, verdict)?;
        same("result", replay.result, value("word"))?;
        same("attempt", replay.attempt, 1)?;
    }
    Ok(())
}

pub(crate) async fn an_operator_records_that_there_is_no_result(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring(&key, Stage::InDoubt).await?;
    let result = StoredResult::Tombstone(Tombstone::NotEncodable);
    let word = Resolution::Record(Verdict::Completed, result.clone());
    same("resolve", t.resolve(&key, &word).await?, ResolveAnswer::Resolved)?;
    same("result", t.replay(&key).await?.result, result)
}

pub(crate) async fn an_operator_lets_a_key_be_tried_again(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let first = t.bring(&key, Stage::InDoubt).await?;
    same("resolve", t.resolve(&key, &Resolution::Release).await?, ResolveAnswer::Resolved)?;
    same("state", t.record(&key).await?.state, State::Released)?;
    let next = t.take(&key).await?.grant;
    same("attempt", next.attempt, 2)?;
    same("recovered", next.recovered, false)?;
    that(next.fence > first.grant.fence, "a new grant has a new fence")?;
    // Also if a call has tried to settle the doubt before.
    let key = t.key("b")?;
    t.bring(&key, Stage::InDoubt).await?;
    let second = t.grant(&key, &t.ask_settling()).await?;
    same("release", t.release(&second, ReleaseCause::Abandoned).await?, ReleaseAnswer::InDoubt)?;
    same("resolve", t.resolve(&key, &Resolution::Release).await?, ResolveAnswer::Resolved)?;
    let third = t.take(&key).await?.grant;
    same("attempt and recovered", (third.attempt, third.recovered), (3, false))
}

pub(crate) async fn a_resolved_record_belongs_to_nobody_and_expires(t: &Trial) -> Checked {
    for (number, word) in words().iter().enumerate() {
        let key = t.key(format!("{number}"))?;
        t.bring(&key, Stage::InDoubt).await?;
        t.resolve(&key, word).await?;
        let record = t.record(&key).await?;
        same("owner", record.owner, Owner::NOBODY)?;
        let from = record.completed_at.unwrap_or(record.created_at);
        t.dated("expires_at", record.expires_at, from.after(record.ttl))?;
        same("completed_at", record.completed_at.is_some(), *word != Resolution::Release)?;
    }
    Ok(())
}

pub(crate) async fn the_worker_in_doubt_comes_too_late_after_the_operators_word(t: &Trial) -> Checked {
    for (number, word) in words().iter().enumerate() {
        let key = t.key(format!("{number}"))?;
        let held = t.bring(&key, Stage::InDoubt).await?;
        t.resolve(&key, word).await?;
        let before = t.get(&key).await?;
        same("complete", t.complete(&held, b"late").await?, CompleteAnswer::Lost)?;
        same("renew", t.renew(&held, LONG).await?, RenewAnswer::Lost)?;
        for cause in [ReleaseCause::Failed, ReleaseCause::Abandoned] {
            same("release", t.release(&held, cause).await?, ReleaseAnswer::Lost)?;
        }
        t.unchanged(&key, &before).await?;
    }
    Ok(())
}

pub(crate) async fn only_a_key_in_doubt_can_be_resolved(t: &Trial) -> Checked {
    for stage in Stage::live().filter(|stage| *stage != Stage::InDoubt) {
        let key = t.key(format!("{stage:?}"))?;
        t.bring(&key, stage).await?;
        let before = t.get(&key).await?;
        let wanted = stage.state().map_or(ResolveAnswer::Absent, ResolveAnswer::NotInDoubt);
        for word in words() {
            same("resolve", t.resolve(&key, &word).await?, wanted).map_err(|broken| broken.at(stage))?;
        }
        t.unchanged(&key, &before).await.map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn an_absent_key_cannot_be_resolved(t: &Trial) -> Checked {
    for stage in [Stage::Forgotten, Stage::Expired, Stage::ExpiredInFlight] {
        let key = t.key(format!("{stage:?}"))?;
        t.bring(&key, stage).await?;
        for word in words() {
            same("resolve", t.resolve(&key, &word).await?, ResolveAnswer::Absent)
                .map_err(|broken| broken.at(stage))?;
        }
        same("record", t.get(&key).await?, None)?;
    }
    let never = t.key("never")?;
    same("resolve", t.resolve(&never, &Resolution::Release).await?, ResolveAnswer::Absent)?;
    same("record", t.get(&never).await?, None)
}

pub(crate) async fn a_word_given_twice_finds_the_first(t: &Trial) -> Checked {
    for (number, word) in words().iter().enumerate() {
        let key = t.key(format!("{number}"))?;
        t.bring(&key, Stage::InDoubt).await?;
        t.resolve(&key, word).await?;
        let record = t.record(&key).await?;
        for other in words() {
            same("resolve", t.resolve(&key, &other).await?, ResolveAnswer::NotInDoubt(record.state))?;
        }
        t.unchanged(&key, &Some(record)).await?;
    }
    Ok(())
}

pub(crate) async fn a_lapsed_lease_is_in_doubt_only_once_somebody_asked(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring_with(&key, Stage::Lapsed, t.ask_in_doubt()).await?;
    let answer = t.resolve(&key, &Resolution::Release).await?;
    same("resolve", answer, ResolveAnswer::NotInDoubt(State::InFlight))?;
    same("claim", t.claim(&key, &t.ask()).await?, ClaimAnswer::InDoubt)?;
    same("resolve", t.resolve(&key, &Resolution::Release).await?, ResolveAnswer::Resolved)
}

pub(crate) async fn a_resolution_keeps_what_must_survive(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let request = t.ask().with_fingerprint(Some(print_of(6)));
    let held = t.bring_with(&key, Stage::InDoubt, request.clone()).await?;
    let before = t.record(&key).await?;
    t.resolve(&key, &Resolution::Record(Verdict::Completed, value("word"))).await?;
    let after = t.record(&key).await?;
    same("fence", after.fence, held.grant.fence)?;
    same("attempt", after.attempt, before.attempt)?;
    same("fingerprint", after.fingerprint, request.fingerprint)?;
    same("created_at", after.created_at, before.created_at)
}

pub(crate) async fn a_word_on_what_was_seen_resolves_it(t: &Trial) -> Checked {
    for (number, word) in words().into_iter().enumerate() {
        let (plain, seen) = (t.key(format!("{number}"))?, t.key(format!("{number} seen"))?);
        for key in [&plain, &seen] {
            t.bring(key, Stage::InDoubt).await?;
        }
        same("resolve", t.resolve(&plain, &word).await?, ResolveAnswer::Resolved)?;
        let word = word.if_seen(Seen::of(&t.record(&seen).await?));
        same("resolve", t.resolve(&seen, &word).await?, ResolveAnswer::Resolved)?;
        let (plain, seen) = (t.record(&plain).await?, t.record(&seen).await?);
        same("state", seen.state, plain.state)?;
        same("owner", seen.owner, plain.owner)?;
        same("result", seen.result, plain.result)?;
    }
    Ok(())
}

pub(crate) async fn a_word_on_what_has_changed_changes_nothing(t: &Trial) -> Checked {
    for stage in Stage::live() {
        let key = t.key(format!("{stage:?}"))?;
        t.bring(&key, stage).await?;
        let before = t.record(&key).await?;
        let mut fence = Seen::of(&before);
        fence.fence = idem_core::Fence::new(before.fence.get() - 1);
        let mut attempt = Seen::of(&before);
        attempt.attempt += 1;
        let mut state = Seen::of(&before);
        state.state = if before.state == State::InDoubt { State::InFlight } else { State::InDoubt };
        for other in [fence, attempt, state] {
            let words = words().into_iter().map(|word| word.if_seen(other));
            for word in words.chain([Resolution::ForgetSeen(other)]) {
                same("resolve", t.resolve(&key, &word).await?, ResolveAnswer::Changed(before.state))
                    .map_err(|broken| broken.at(stage))?;
            }
        }
        t.unchanged(&key, &Some(before)).await.map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn what_was_seen_is_forgotten_in_any_state(t: &Trial) -> Checked {
    for stage in Stage::live() {
        let key = t.key(format!("{stage:?}"))?;
        let held = t.bring_with(&key, stage, t.ask().with_fingerprint(Some(print_of(6)))).await?;
        let before = t.record(&key).await?;
        let word = Resolution::ForgetSeen(Seen::of(&before));
        let at = |broken: crate::conformance::trial::Broken| broken.at(stage);
        same("resolve", t.resolve(&key, &word).await?, ResolveAnswer::Resolved).map_err(at)?;
        same("record", t.get(&key).await?, None).map_err(at)?;
        same("resolve again", t.resolve(&key, &word).await?, ResolveAnswer::Absent).map_err(at)?;
        same("complete", t.complete(&held, b"late").await?, CompleteAnswer::Lost).map_err(at)?;
        // The claim has another fingerprint, because nothing of the old record counts.
        let next = t.grant(&key, &t.ask().with_fingerprint(Some(print_of(7)))).await?.grant;
        same("attempt and recovered", (next.attempt, next.recovered), (1, false)).map_err(at)?;
        that(next.fence > before.fence, "the fence rises over being forgotten").map_err(at)?;
    }
    Ok(())
}
