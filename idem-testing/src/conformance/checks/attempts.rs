//! Checks of attempts that run out.

use std::time::Duration;

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Checked, LONG, Trial, same, that, value};
use idem_core::protocol::{
    ClaimAnswer, CompleteAnswer, Owner, ReleaseAnswer, ReleaseCause, RenewAnswer, State, StoredResult,
    Tombstone,
};

pub(crate) async fn a_key_is_granted_as_often_as_its_limit_says(t: &Trial) -> Checked {
    let key = t.key("a")?;
    for attempt in 1..=3 {
        let held = t.grant(&key, &t.ask_at_most(3)).await?;
        same("attempt", held.grant.attempt, attempt)?;
        t.release(&held, ReleaseCause::Failed).await?;
    }
    same("claim", t.claim(&key, &t.ask_at_most(3)).await?, ClaimAnswer::Exhausted { attempts: 3 })
}

pub(crate) async fn a_lapsed_last_attempt_exhausts_the_key(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring_with(&key, Stage::Lapsed, t.ask_at_most(1)).await?;
    same("claim", t.claim(&key, &t.ask_at_most(1)).await?, ClaimAnswer::Exhausted { attempts: 1 })
}

pub(crate) async fn a_running_last_attempt_is_busy(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring_with(&key, Stage::Running, t.ask_at_most(1)).await?;
    let answer = t.claim(&key, &t.ask_at_most(1)).await?;
    that(matches!(answer, ClaimAnswer::Busy { .. }), format!("it should be busy and is {answer:?}"))
}

pub(crate) async fn the_owner_of_the_last_attempt_is_granted_it_again(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let request = t.ask_at_most(1).with_lease(t.short());
    let first = t.grant(&key, &request).await?.grant;
    same("fence", t.grant(&key, &request).await?.grant.fence, first.fence)?;
    t.pass(t.short()).await;
    same("fence after the lease", t.grant(&key, &request).await?.grant.fence, first.fence)
}

pub(crate) async fn exhausted_is_told_to_everybody(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.bring(&key, Stage::Exhausted).await?;
    let own = t.ask().with_owner(held.owner);
    for request in [t.ask(), t.ask_at_most(1), t.ask_at_most(9), t.ask_in_doubt(), own] {
        same("claim", t.claim(&key, &request).await?, ClaimAnswer::Exhausted { attempts: 1 })?;
    }
    Ok(())
}

pub(crate) async fn an_exhausted_key_is_recorded_as_failed_by_nobody(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring(&key, Stage::Exhausted).await?;
    let record = t.record(&key).await?;
    same("state", record.state, State::Failed)?;
    same("owner", record.owner, Owner::NOBODY)?;
    same("result", record.result, Some(StoredResult::Tombstone(Tombstone::Exhausted)))?;
    same("attempt", record.attempt, 1)?;
    same("expires_at", record.expires_at, record.completed_at.map(|at| at.after(record.ttl)))
}

pub(crate) async fn the_last_owner_comes_too_late_once_the_key_is_exhausted(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.bring_with(&key, Stage::Lapsed, t.ask_at_most(1)).await?;
    t.claim(&key, &t.ask_at_most(1)).await?;
    let before = t.get(&key).await?;
    same("complete", t.complete(&held, b"r").await?, CompleteAnswer::Lost)?;
    same("renew", t.renew(&held, LONG).await?, RenewAnswer::Lost)?;
    same("release", t.release(&held, ReleaseCause::Failed).await?, ReleaseAnswer::Lost)?;
    t.unchanged(&key, &before).await
}

pub(crate) async fn past_the_limit_who_recovers_is_granted_to_recover_only(t: &Trial) -> Checked {
    for (name, stage) in [("lapsed", Stage::Lapsed), ("abandoned", Stage::Abandoned)] {
        let key = t.key(name)?;
        t.bring(&key, stage).await?;
        let request = t.ask_at_most(1).with_recovers(true);
        let held = t.grant(&key, &request).await?;
        same("recovered", held.grant.recovered, true)?;
        same("recover only", held.grant.recover_only, true)?;
        same("the same, asked again", t.grant(&key, &request).await?.grant.recover_only, true)?;
        t.busy(&key).await?;
        same("complete", t.complete(&held, b"found").await?, CompleteAnswer::Done)?;
        same("result", t.replay(&key).await?.result, value("found"))?;
    }
    let within = t.key("within the limit")?;
    t.bring(&within, Stage::Lapsed).await?;
    let held = t.grant(&within, &t.ask_at_most(2).with_recovers(true)).await?;
    same("recover only", held.grant.recover_only, false)?;
    // The outcome of a body that returned is known, so there is nothing to recover.
    let failed = t.key("failed")?;
    t.bring(&failed, Stage::Released).await?;
    let answer = t.claim(&failed, &t.ask_at_most(1).with_recovers(true)).await?;
    same("claim", answer, ClaimAnswer::Exhausted { attempts: 1 })
}

pub(crate) async fn a_grant_past_the_limit_counts_no_attempt(t: &Trial) -> Checked {
    let (unused, nothing) = (ReleaseCause::Unused, ReleaseCause::NothingHappened);
    for cause in [unused, ReleaseCause::Abandoned, nothing] {
        let key = t.key(format!("{cause:?}"))?;
        t.bring(&key, Stage::Abandoned).await?;
        for _ in 0..3 {
            let held = t.grant(&key, &t.ask_at_most(1).with_recovers(true)).await?;
            same("attempt", held.grant.attempt, 2)?;
            same("recover only", held.grant.recover_only, true)?;
            same("release", t.release(&held, cause).await?, ReleaseAnswer::Released)?;
            if cause == nothing {
                break;
            }
        }
        if cause == unused {
            same("attempt", t.grant(&key, &t.ask_at_most(2)).await?.grant.attempt, 2)?;
        }
        if cause == nothing {
            let answer = t.claim(&key, &t.ask_at_most(1).with_recovers(true)).await?;
            same("claim", answer, ClaimAnswer::Exhausted { attempts: 1 })?;
        }
    }
    Ok(())
}

pub(crate) async fn the_limit_is_the_claimants(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring_with(&key, Stage::Released, t.ask_at_most(1)).await?;
    let second = t.grant(&key, &t.ask_at_most(2)).await?;
    t.release(&second, ReleaseCause::Failed).await?;
    let third = t.grant(&key, &t.ask()).await?;
    same("attempt", third.grant.attempt, 3)?;
    t.release(&third, ReleaseCause::Failed).await?;
    same("claim", t.claim(&key, &t.ask_at_most(2)).await?, ClaimAnswer::Exhausted { attempts: 3 })
}

pub(crate) async fn crashes_and_failures_count_alike(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring(&key, Stage::Lapsed).await?;
    let second = t.take(&key).await?;
    t.release(&second, ReleaseCause::Abandoned).await?;
    let third = t.take(&key).await?;
    same("attempt", third.grant.attempt, 3)?;
    t.release(&third, ReleaseCause::Failed).await?;
    same("claim", t.claim(&key, &t.ask_at_most(3)).await?, ClaimAnswer::Exhausted { attempts: 3 })
}

pub(crate) async fn a_key_is_exhausted_whether_or_not_it_is_due(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring(&key, Stage::NotDue).await?;
    same("claim", t.claim(&key, &t.ask_at_most(1)).await?, ClaimAnswer::Exhausted { attempts: 1 })
}

pub(crate) async fn an_exhausted_key_is_kept_for_the_claimants_lifetime(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring(&key, Stage::Released).await?;
    let last = t.ask_at_most(1).with_ttl(t.short());
    same("claim", t.claim(&key, &last).await?, ClaimAnswer::Exhausted { attempts: 1 })?;
    if t.is_exact() {
        // On a real clock, the record may already have expired.
        same("lifetime", t.record(&key).await?.ttl, t.short())?;
    }
    t.pass(t.short()).await;
    same("attempt", t.grant(&key, &t.ask_at_most(1)).await?.grant.attempt, 1)
}

pub(crate) async fn a_key_that_is_not_due_is_refused_until_it_is(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.take(&key).await?;
    let release = held.release(ReleaseCause::Failed).with_retry_after(LONG);
    t.release_with(&key, &release).await?;
    t.pass(t.short()).await;
    match t.claim(&key, &t.ask()).await? {
        ClaimAnswer::RetryAt { retry_after } => {
            t.left("the time until it is due", retry_after, LONG - t.short())?;
        }
        other => that(false, format!("it should not be due, and the answer is {other:?}"))?,
    }
    let soon = t.key("b")?;
    let held = t.take(&soon).await?;
    let release = held.release(ReleaseCause::Failed).with_retry_after(t.short());
    t.release_with(&soon, &release).await?;
    if t.is_exact() {
        let micro = Duration::from_micros(1);
        t.pass(t.short() - micro).await;
        let answer = t.claim(&soon, &t.ask()).await?;
        same("claim", answer, ClaimAnswer::RetryAt { retry_after: micro })?;
        t.pass(micro).await;
    } else {
        t.pass(t.short()).await;
    }
    same("attempt", t.take(&soon).await?.grant.attempt, 2)
}

pub(crate) async fn a_key_that_is_not_due_is_refused_to_who_released_it(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.bring(&key, Stage::NotDue).await?;
    let answer = t.claim(&key, &t.ask().with_owner(held.owner)).await?;
    that(
        matches!(answer, ClaimAnswer::RetryAt { .. }),
        format!("it is not due, and the answer is {answer:?}"),
    )
}
