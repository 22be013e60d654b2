//! Checks of releasing a claim.

use std::time::Duration;

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Checked, DAY, Held, LONG, Trial, print_of, same, that};
use idem_core::protocol::{
    ClaimAnswer, CompleteAnswer, Fence, OnCrash, ReleaseAnswer, ReleaseCause, RenewAnswer, State,
};

pub(super) const CAUSES: [ReleaseCause; 4] =
    [ReleaseCause::Failed, ReleaseCause::Abandoned, ReleaseCause::Unused, ReleaseCause::NothingHappened];

pub(crate) async fn an_owner_gives_its_claim_up(t: &Trial) -> Checked {
    for cause in CAUSES {
        let key = t.key(format!("{cause:?}"))?;
        let held = t.take(&key).await?;
        same("release", t.release(&held, cause).await?, ReleaseAnswer::Released)?;
        same("state", t.record(&key).await?.state, State::Released)?;
        let attempt = if matches!(cause, ReleaseCause::Failed | ReleaseCause::Abandoned) { 2 } else { 1 };
        let next = t.take(&key).await?.grant;
        same("attempt", next.attempt, attempt)?;
        same("recovered", next.recovered, cause == ReleaseCause::Abandoned)?;
    }
    Ok(())
}

pub(crate) async fn a_release_keeps_what_must_survive(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let request = t.ask().with_fingerprint(Some(print_of(5)));
    let held = t.grant(&key, &request).await?;
    let before = t.record(&key).await?;
    t.release(&held, ReleaseCause::Failed).await?;
    let after = t.record(&key).await?;
    let expected =
        before.with_state(State::Released).with_retry_at(after.retry_at).with_expires_at(after.expires_at);
    same("record", after, expected)
}

pub(crate) async fn a_claim_abandoned_under_in_doubt_is_in_doubt(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.grant(&key, &t.ask_in_doubt()).await?;
    same("release", t.release(&held, ReleaseCause::Abandoned).await?, ReleaseAnswer::InDoubt)?;
    same("claim", t.claim(&key, &t.ask()).await?, ClaimAnswer::InDoubt)?;
    same("state", t.record(&key).await?.state, State::InDoubt)
}

pub(crate) async fn a_claim_that_failed_under_in_doubt_is_released(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.grant(&key, &t.ask_in_doubt()).await?;
    same("release", t.release(&held, ReleaseCause::Failed).await?, ReleaseAnswer::Released)?;
    let record = t.record(&key).await?;
    that(record.expires_at.is_some(), "a released record expires")?;
    same("attempt", t.take(&key).await?.grant.attempt, 2)
}

pub(crate) async fn a_release_asked_again_is_answered_the_same(t: &Trial) -> Checked {
    for cause in CAUSES {
        let key = t.key(format!("{cause:?}"))?;
        let held = t.take(&key).await?;
        t.release(&held, cause).await?;
        let before = t.get(&key).await?;
        t.pass(t.short()).await;
        let later = held.release(cause).with_retry_after(LONG);
        same("release", t.release_with(&key, &later).await?, ReleaseAnswer::Released)?;
        t.unchanged(&key, &before).await?;
    }
    let doubted = t.key("doubted")?;
    let held = t.bring(&doubted, Stage::InDoubt).await?;
    let before = t.get(&doubted).await?;
    same("release", t.release(&held, ReleaseCause::Abandoned).await?, ReleaseAnswer::InDoubt)?;
    t.unchanged(&doubted, &before).await
}

pub(crate) async fn an_abandoned_claim_is_as_one_whose_lease_lapsed(t: &Trial) -> Checked {
    let rerun = t.bring(&t.key("rerun")?, Stage::Abandoned).await?;
    let request = t.ask();
    let next = t.grant(&rerun.key, &request).await?;
    same("attempt and recovered", (next.grant.attempt, next.grant.recovered), (2, true))?;
    same("asked again", t.grant(&rerun.key, &request).await?.grant.recovered, true)?;
    // The next owner reported its outcome, so it is known.
    t.release(&next, ReleaseCause::Failed).await?;
    same("recovered", t.take(&rerun.key).await?.grant.recovered, false)?;

    let doubted = t.bring(&t.key("in doubt")?, Stage::Abandoned).await?;
    same("claim", t.claim(&doubted.key, &t.ask_in_doubt()).await?, ClaimAnswer::InDoubt)?;
    same("state", t.record(&doubted.key).await?.state, State::InDoubt)?;
    // The lease ended with the release, so a claim that settles the doubt need not wait.
    t.grant(&doubted.key, &t.ask_settling()).await?;

    let exhausted = t.bring(&t.key("exhausted")?, Stage::Abandoned).await?;
    let answer = t.claim(&exhausted.key, &t.ask_at_most(1)).await?;
    same("claim", answer, ClaimAnswer::Exhausted { attempts: 1 })?;

    let held = t.take(&t.key("not due")?).await?;
    let later = held.release(ReleaseCause::Abandoned).with_retry_after(t.short());
    same("release", t.release_with(&held.key, &later).await?, ReleaseAnswer::Released)?;
    if t.is_exact() {
        let answer = t.claim(&held.key, &t.ask_in_doubt()).await?;
        same("claim", answer, ClaimAnswer::RetryAt { retry_after: t.short() })?;
    }
    t.pass(t.short()).await;
    same("recovered", t.take(&held.key).await?.grant.recovered, true)
}

pub(crate) async fn a_lapsed_claim_can_still_be_given_up(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.bring(&key, Stage::Lapsed).await?;
    same("release", t.release(&held, ReleaseCause::Failed).await?, ReleaseAnswer::Released)?;
    let next = t.take(&key).await?.grant;
    same("recovered", next.recovered, false)?;
    let doubted = t.key("b")?;
    let held = t.bring_with(&doubted, Stage::Lapsed, t.ask_in_doubt()).await?;
    same("release", t.release(&held, ReleaseCause::Abandoned).await?, ReleaseAnswer::InDoubt)
}

pub(crate) async fn a_release_that_comes_too_late_is_lost_and_changes_nothing(t: &Trial) -> Checked {
    let too_late = [
        Stage::TakenOver,
        Stage::Completed,
        Stage::Failed,
        Stage::Exhausted,
        Stage::Forgotten,
        Stage::Expired,
        Stage::ExpiredInFlight,
    ];
    for stage in too_late {
        let key = t.key(format!("{stage:?}"))?;
        let held = t.bring(&key, stage).await?;
        let before = t.get(&key).await?;
        for cause in CAUSES {
            same("release", t.release(&held, cause).await?, ReleaseAnswer::Lost)
                .map_err(|broken| broken.at(stage))?;
        }
        t.unchanged(&key, &before).await.map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn a_release_does_not_free_the_next_owners_claim(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let first = t.bring(&key, Stage::Released).await?;
    let next = t.take(&key).await?;
    same("release", t.release(&first, ReleaseCause::Failed).await?, ReleaseAnswer::Lost)?;
    t.busy(&key).await?;
    let own = t.grant(&key, &t.ask().with_owner(next.owner)).await?;
    same("fence", own.grant.fence, next.grant.fence)
}

pub(crate) async fn nobody_releases_anothers_claim(t: &Trial) -> Checked {
    for stage in Stage::ALL {
        let key = t.key(format!("{stage:?}"))?;
        let thief = t.bring(&key, stage).await?.with_another_owner();
        let before = t.get(&key).await?;
        for cause in CAUSES {
            same("release", t.release(&thief, cause).await?, ReleaseAnswer::Lost)
                .map_err(|broken| broken.at(stage))?;
        }
        t.unchanged(&key, &before).await.map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn nobody_releases_under_another_fence(t: &Trial) -> Checked {
    for stage in Stage::ALL {
        let key = t.key(format!("{stage:?}"))?;
        let held = t.bring(&key, stage).await?;
        let before = t.get(&key).await?;
        for change in [-1, 1] {
            let answer = t.release(&held.with_fence(change), ReleaseCause::Failed).await?;
            same("release", answer, ReleaseAnswer::Lost).map_err(|broken| broken.at(stage))?;
        }
        t.unchanged(&key, &before).await.map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn releasing_an_absent_key_is_lost_and_makes_none(t: &Trial) -> Checked {
    let held = t.take(&t.key("a")?).await?;
    let absent = t.key("b")?;
    let answer = t.release_with(&absent, &held.release(ReleaseCause::Failed)).await?;
    same("release", answer, ReleaseAnswer::Lost)?;
    same("record", t.get(&absent).await?, None)
}

pub(crate) async fn a_released_record_is_kept_from_when_it_is_due(t: &Trial) -> Checked {
    for retry_after in [Duration::ZERO, LONG] {
        let key = t.key(format!("{retry_after:?}"))?;
        let held = t.grant(&key, &t.ask().with_ttl(DAY * 2)).await?;
        let release = held.release(ReleaseCause::Failed).with_retry_after(retry_after);
        t.release_with(&key, &release).await?;
        let record = t.record(&key).await?;
        t.dated("expires_at", record.expires_at, record.created_at.after(retry_after + DAY * 2))?;
    }
    Ok(())
}

pub(crate) async fn a_record_that_is_not_due_is_not_forgotten_first(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.grant(&key, &t.ask().with_ttl(t.short())).await?;
    let release = held.release(ReleaseCause::Failed).with_retry_after(LONG);
    t.release_with(&key, &release).await?;
    t.pass(t.short() * 2).await;
    t.purge(1_000).await?;
    let answer = t.claim(&key, &t.ask()).await?;
    that(
        matches!(answer, ClaimAnswer::RetryAt { .. }),
        format!("it is not due, and the answer is {answer:?}"),
    )
}

pub(crate) async fn a_release_under_a_later_policy_goes_by_that(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring_with(&key, Stage::Released, t.ask_in_doubt()).await?;
    let second = t.grant(&key, &t.ask().with_on_crash(OnCrash::Rerun)).await?;
    same("release", t.release(&second, ReleaseCause::Abandoned).await?, ReleaseAnswer::Released)
}

pub(crate) async fn a_claim_given_back_unused_counts_no_attempt(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let mut last = Fence::default();
    for _ in 0..3 {
        let unused = t.take(&key).await?;
        same("attempt", unused.grant.attempt, 1)?;
        that(unused.grant.fence > last, "a new grant has a new fence, used or not")?;
        last = unused.grant.fence;
        same("release", t.release(&unused, ReleaseCause::Unused).await?, ReleaseAnswer::Released)?;
    }
    let first = t.grant(&key, &t.ask_at_most(1)).await?;
    t.release(&first, ReleaseCause::Failed).await?;
    let second = t.take(&key).await?;
    same("attempt", second.grant.attempt, 2)?;
    t.release(&second, ReleaseCause::Unused).await?;
    same("attempt", t.take(&key).await?.grant.attempt, 2)
}

pub(crate) async fn a_claim_given_back_unused_is_its_owners_no_more(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.take(&key).await?;
    t.release(&held, ReleaseCause::Unused).await?;
    let before = t.get(&key).await?;
    same("release", t.release(&held, ReleaseCause::Unused).await?, ReleaseAnswer::Released)?;
    same("complete", t.complete(&held, b"late").await?, CompleteAnswer::Lost)?;
    same("renew", t.renew(&held, LONG).await?, RenewAnswer::Lost)?;
    t.unchanged(&key, &before).await
}

pub(crate) async fn a_claim_given_back_unused_is_not_in_doubt(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.grant(&key, &t.ask_in_doubt()).await?;
    same("release", t.release(&held, ReleaseCause::Unused).await?, ReleaseAnswer::Released)?;
    let next = t.grant(&key, &t.ask_in_doubt()).await?.grant;
    same("attempt", next.attempt, 1)?;
    same("recovered", next.recovered, false)
}

/// A key whose lease lapsed, and whose next grant was released unused.
async fn given_back(t: &Trial, name: &str) -> Checked<Held> {
    let key = t.key(name)?;
    t.bring(&key, Stage::Lapsed).await?;
    let unused = t.take(&key).await?;
    same("release", t.release(&unused, ReleaseCause::Unused).await?, ReleaseAnswer::Released)?;
    Ok(unused)
}

pub(crate) async fn a_takeover_given_back_unused_leaves_a_lapsed_lease(t: &Trial) -> Checked {
    let unused = given_back(t, "taken over again").await?;
    let next = t.take(&unused.key).await?.grant;
    same("attempt", next.attempt, 2)?;
    same("recovered", next.recovered, true)?;
    that(next.fence > unused.grant.fence, "a new grant has a new fence")?;
    let unused = given_back(t, "in doubt").await?;
    same("claim", t.claim(&unused.key, &t.ask_in_doubt()).await?, ClaimAnswer::InDoubt)?;
    let unused = given_back(t, "exhausted").await?;
    let answer = t.claim(&unused.key, &t.ask_at_most(1)).await?;
    same("claim", answer, ClaimAnswer::Exhausted { attempts: 1 })
}

pub(crate) async fn a_takeover_that_finds_that_nothing_happened_leaves_nothing_to_recover(
    t: &Trial,
) -> Checked {
    let (lapsed, doubt) = (t.key("lapsed")?, t.key("in doubt")?);
    t.bring(&lapsed, Stage::Lapsed).await?;
    t.bring(&doubt, Stage::InDoubt).await?;
    for (key, request) in [(lapsed, t.ask()), (doubt, t.ask_settling())] {
        let held = t.grant(&key, &request).await?;
        same("recovered", held.grant.recovered, true)?;
        for _ in 0..2 {
            let answer = t.release(&held, ReleaseCause::NothingHappened).await?;
            same("release", answer, ReleaseAnswer::Released)?;
        }
        let next = t.grant(&key, &t.ask_in_doubt()).await?.grant;
        same("attempt and recovered", (next.attempt, next.recovered), (2, false))?;
    }
    Ok(())
}

pub(crate) async fn a_first_claim_given_back_unused_leaves_no_fingerprint(t: &Trial) -> Checked {
    let with = |byte| t.ask().with_fingerprint(Some(print_of(byte)));
    let key = t.key("first")?;
    let first = t.grant(&key, &with(1)).await?;
    t.release(&first, ReleaseCause::Unused).await?;
    same("fingerprint", t.record(&key).await?.fingerprint, None)?;
    // A call with corrected arguments gets the key.
    let second = t.grant(&key, &with(2)).await?;
    same("attempt", second.grant.attempt, 1)?;
    t.release(&second, ReleaseCause::Failed).await?;
    // After a body has run, the key belongs to its arguments.
    let third = t.grant(&key, &with(2)).await?;
    t.release(&third, ReleaseCause::Unused).await?;
    same("claim", t.claim(&key, &with(1)).await?, ClaimAnswer::Mismatch)?;
    same("attempt", t.grant(&key, &with(2)).await?.grant.attempt, 2)
}

pub(crate) async fn a_takeover_given_back_unused_is_its_owners_no_more(t: &Trial) -> Checked {
    let unused = given_back(t, "a").await?;
    let before = t.get(&unused.key).await?;
    same("release", t.release(&unused, ReleaseCause::Unused).await?, ReleaseAnswer::Released)?;
    same("complete", t.complete(&unused, b"late").await?, CompleteAnswer::Lost)?;
    same("renew", t.renew(&unused, LONG).await?, RenewAnswer::Lost)?;
    t.unchanged(&unused.key, &before).await
}
