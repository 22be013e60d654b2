//! Checks of recording a result.

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Checked, DAY, Trial, print_of, same, value};
use idem_core::protocol::{CompleteAnswer, OnCrash, ReleaseAnswer, ReleaseCause, State, Verdict};

/// The stages in which the first owner's result is refused and is not recorded already.
fn too_late() -> impl Iterator<Item = Stage> {
    Stage::ALL.into_iter().filter(|stage| {
        !matches!(stage, Stage::Running | Stage::Lapsed | Stage::Completed | Stage::Failed | Stage::InDoubt)
    })
}

pub(crate) async fn an_owner_records_its_result(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let request = t.ask().with_fingerprint(Some(print_of(4)));
    let held = t.grant(&key, &request).await?;
    same("complete", t.complete(&held, b"receipt").await?, CompleteAnswer::Done)?;
    let record = t.record(&key).await?;
    same("state", record.state, State::Completed)?;
    same("owner", record.owner, held.owner)?;
    same("fence", record.fence, held.grant.fence)?;
    same("attempt", record.attempt, 1)?;
    same("fingerprint", record.fingerprint, request.fingerprint)?;
    same("result", record.result, Some(value("receipt")))
}

pub(crate) async fn a_result_is_taken_even_if_the_lease_is_over(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.bring(&key, Stage::Lapsed).await?;
    same("complete", t.complete(&held, b"late").await?, CompleteAnswer::Done)?;
    same("result", t.replay(&key).await?.result, value("late"))
}

pub(crate) async fn a_slow_owner_cannot_overwrite_its_successors_result(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let slow = t.bring(&key, Stage::Lapsed).await?;
    let next = t.take(&key).await?;
    same("complete by the slow one", t.complete(&slow, b"slow").await?, CompleteAnswer::Lost)?;
    same("complete by the next", t.complete(&next, b"next").await?, CompleteAnswer::Done)?;
    same("complete by the slow one", t.complete(&slow, b"slow").await?, CompleteAnswer::Lost)?;
    same("result", t.replay(&key).await?.result, value("next"))
}

pub(crate) async fn a_result_that_comes_too_late_is_lost_and_changes_nothing(t: &Trial) -> Checked {
    for stage in too_late() {
        let key = t.key(format!("{stage:?}"))?;
        let held = t.bring(&key, stage).await?;
        let before = t.get(&key).await?;
        same("complete", t.complete(&held, b"late").await?, CompleteAnswer::Lost)
            .map_err(|broken| broken.at(stage))?;
        t.unchanged(&key, &before).await.map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn a_result_recorded_twice_is_the_first(t: &Trial) -> Checked {
    for stage in [Stage::Completed, Stage::Failed] {
        let key = t.key(format!("{stage:?}"))?;
        let held = t.bring(&key, stage).await?;
        let before = t.get(&key).await?;
        for verdict in [Verdict::Completed, Verdict::Failed] {
            let again = held.completion("second").with_verdict(verdict).with_ttl(DAY * 9);
            same("complete", t.complete_with(&key, &again).await?, CompleteAnswer::Done)
                .map_err(|broken| broken.at(stage))?;
        }
        t.unchanged(&key, &before).await.map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn nobody_completes_anothers_claim(t: &Trial) -> Checked {
    for stage in Stage::ALL {
        let key = t.key(format!("{stage:?}"))?;
        let thief = t.bring(&key, stage).await?.with_another_owner();
        let before = t.get(&key).await?;
        same("complete", t.complete(&thief, b"stolen").await?, CompleteAnswer::Lost)
            .map_err(|broken| broken.at(stage))?;
        t.unchanged(&key, &before).await.map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn nobody_completes_under_another_fence(t: &Trial) -> Checked {
    for stage in Stage::ALL {
        let key = t.key(format!("{stage:?}"))?;
        let held = t.bring(&key, stage).await?;
        let before = t.get(&key).await?;
        for change in [-1, 1] {
            let answer = t.complete(&held.with_fence(change), b"wrong").await?;
            same("complete", answer, CompleteAnswer::Lost).map_err(|broken| broken.at(stage))?;
        }
        t.unchanged(&key, &before).await.map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn an_owner_does_not_complete_a_later_attempt_of_its_own(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let first = t.bring(&key, Stage::Forgotten).await?;
    let second = t.grant(&key, &t.ask().with_owner(first.owner)).await?;
    same("complete under the old fence", t.complete(&first, b"old").await?, CompleteAnswer::Lost)?;
    same("complete", t.complete(&second, b"new").await?, CompleteAnswer::Done)?;
    same("complete under the old fence", t.complete(&first, b"old").await?, CompleteAnswer::Lost)?;
    same("result", t.replay(&key).await?.result, value("new"))
}

pub(crate) async fn completing_an_absent_key_is_lost_and_makes_none(t: &Trial) -> Checked {
    let held = t.take(&t.key("a")?).await?;
    let absent = t.key("b")?;
    let answer = t.complete_with(&absent, &held.completion("r")).await?;
    same("complete", answer, CompleteAnswer::Lost)?;
    same("record", t.get(&absent).await?, None)
}

pub(crate) async fn a_result_is_kept_from_completion_for_its_own_lifetime(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.grant(&key, &t.ask().with_ttl(DAY * 3)).await?;
    t.pass(t.short()).await;
    t.complete_with(&key, &held.completion("r").with_ttl(DAY * 7)).await?;
    let record = t.record(&key).await?;
    same("expires_at", record.expires_at, record.completed_at.map(|at| at.after(DAY * 7)))?;
    same("lifetime", record.ttl, DAY * 7)
}

pub(crate) async fn a_result_under_in_doubt_expires_like_any(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.grant(&key, &t.ask().with_on_crash(OnCrash::InDoubt)).await?;
    t.complete(&held, b"r").await?;
    let record = t.record(&key).await?;
    same("expires_at", record.expires_at, record.completed_at.map(|at| at.after(DAY)))
}

pub(crate) async fn a_completed_claim_cannot_be_released(t: &Trial) -> Checked {
    for stage in [Stage::Completed, Stage::Failed] {
        let key = t.key(format!("{stage:?}"))?;
        let held = t.bring(&key, stage).await?;
        for cause in [ReleaseCause::Failed, ReleaseCause::Abandoned] {
            same("release", t.release(&held, cause).await?, ReleaseAnswer::Lost)?;
        }
        same("result", t.replay(&key).await?.result, value("first"))?;
    }
    Ok(())
}

pub(crate) async fn a_takeover_records_its_result(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring(&key, Stage::Lapsed).await?;
    let next = t.take(&key).await?;
    same("complete", t.complete(&next, b"r").await?, CompleteAnswer::Done)?;
    same("attempt", t.replay(&key).await?.attempt, 2)
}
