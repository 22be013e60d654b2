//! Checks of lapsed leases under the `in_doubt` policy.

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Checked, Held, LONG, Trial, print_of, same, that, value};
use idem_core::protocol::{
    ClaimAnswer, CompleteAnswer, OnCrash, RecordStepAnswer, RecordedStep, ReleaseAnswer, ReleaseCause,
    RenewAnswer, State,
};

pub(crate) async fn a_lapsed_lease_recorded_in_doubt_is_never_taken_over(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring_with(&key, Stage::Lapsed, t.ask_in_doubt()).await?;
    same("claim", t.claim(&key, &t.ask()).await?, ClaimAnswer::InDoubt)?;
    same("state", t.record(&key).await?.state, State::InDoubt)
}

pub(crate) async fn a_lapsed_lease_is_in_doubt_if_only_the_claimant_says_so(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring(&key, Stage::Lapsed).await?;
    same("claim", t.claim(&key, &t.ask_in_doubt()).await?, ClaimAnswer::InDoubt)?;
    same("claim without the policy", t.claim(&key, &t.ask()).await?, ClaimAnswer::InDoubt)
}

pub(crate) async fn a_running_lease_under_in_doubt_is_busy(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring_with(&key, Stage::Running, t.ask_in_doubt()).await?;
    t.left("the lease", t.busy(&key).await?, LONG)?;
    let answer = t.claim(&key, &t.ask_in_doubt()).await?;
    that(matches!(answer, ClaimAnswer::Busy { .. }), format!("it should be busy and is {answer:?}"))
}

pub(crate) async fn a_key_in_doubt_tells_every_claimant(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.bring(&key, Stage::InDoubt).await?;
    let own = t.ask().with_owner(held.owner);
    for request in [t.ask(), t.ask_in_doubt(), own, t.ask_at_most(1), t.ask_at_most(9)] {
        same("claim", t.claim(&key, &request).await?, ClaimAnswer::InDoubt)?;
    }
    Ok(())
}

pub(crate) async fn a_key_in_doubt_keeps_who_had_it(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.bring_with(&key, Stage::Lapsed, t.ask_in_doubt()).await?;
    t.claim(&key, &t.ask()).await?;
    let record = t.record(&key).await?;
    same("owner", record.owner, held.owner)?;
    same("fence", record.fence, held.grant.fence)?;
    same("attempt", record.attempt, 1)?;
    same("policy", record.on_crash, OnCrash::InDoubt)?;
    same("expires_at", record.expires_at, None)
}

pub(crate) async fn a_key_in_doubt_never_expires(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring_with(&key, Stage::InDoubt, t.ask_in_doubt().with_ttl(t.short())).await?;
    t.pass(t.short() * 3).await;
    t.purge(1_000).await?;
    same("claim", t.claim(&key, &t.ask()).await?, ClaimAnswer::InDoubt)
}

pub(crate) async fn a_lapsed_lease_under_in_doubt_never_expires(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring_with(&key, Stage::Lapsed, t.ask_in_doubt().with_ttl(t.short())).await?;
    t.pass(t.short() * 3).await;
    t.purge(1_000).await?;
    same("claim", t.claim(&key, &t.ask()).await?, ClaimAnswer::InDoubt)
}

pub(crate) async fn a_renewed_lease_under_in_doubt_never_expires(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let request = t.ask_in_doubt().with_lease(t.short()).with_ttl(t.short());
    let held = t.grant(&key, &request).await?;
    same("renew", t.renew(&held, t.short()).await?, RenewAnswer::Held)?;
    same("expires_at", t.record(&key).await?.expires_at, None)?;
    t.pass(t.short() * 3).await;
    t.purge(1_000).await?;
    same("claim", t.claim(&key, &t.ask()).await?, ClaimAnswer::InDoubt)
}

pub(crate) async fn in_doubt_goes_before_exhausted(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring_with(&key, Stage::Lapsed, t.ask_in_doubt()).await?;
    same("claim", t.claim(&key, &t.ask_at_most(1)).await?, ClaimAnswer::InDoubt)
}

pub(crate) async fn a_lapsed_lease_under_in_doubt_is_its_owners_until_somebody_asks(t: &Trial) -> Checked {
    let done = t.key("done")?;
    let held = t.bring_with(&done, Stage::Lapsed, t.ask_in_doubt()).await?;
    same("complete", t.complete(&held, b"r").await?, CompleteAnswer::Done)?;
    t.replay(&done).await?;
    Ok(())
}

/// A key that another caller found in doubt while its worker is alive.
async fn found_in_doubt(t: &Trial, name: &str) -> Checked<Held> {
    let held = t.bring_with(&t.key(name)?, Stage::Lapsed, t.ask_in_doubt()).await?;
    same("claim", t.claim(&held.key, &t.ask()).await?, ClaimAnswer::InDoubt)?;
    Ok(held)
}

pub(crate) async fn the_worker_in_doubt_goes_on_and_its_result_counts(t: &Trial) -> Checked {
    let held = found_in_doubt(t, "a").await?;
    same("renew", t.renew(&held, LONG).await?, RenewAnswer::HeldInDoubt)?;
    let record = t.record(&held.key).await?;
    same("state", record.state, State::InDoubt)?;
    that(record.lease_until > record.created_at.after(LONG), "the lease runs from the renewal")?;
    same("claim", t.claim(&held.key, &t.ask()).await?, ClaimAnswer::InDoubt)?;
    same("complete", t.complete(&held, b"receipt").await?, CompleteAnswer::Done)?;
    same("complete, asked again", t.complete(&held, b"another").await?, CompleteAnswer::Done)?;
    same("replay", t.replay(&held.key).await?.result, value("receipt"))?;
    that(t.record(&held.key).await?.expires_at.is_some(), "a result expires")
}

pub(crate) async fn the_steps_of_the_worker_in_doubt_are_recorded(t: &Trial) -> Checked {
    let held = found_in_doubt(t, "a").await?;
    let step = RecordedStep::new("charge".into(), Some(print_of(1)), value("c-1"));
    for _ in 0..2 {
        same("record_step", t.record_step(&held, 0, &step).await?, RecordStepAnswer::Recorded)?;
    }
    let record = t.record(&held.key).await?;
    same("steps", record.steps, vec![step])?;
    same("state", record.state, State::InDoubt)
}

pub(crate) async fn a_doubt_whose_worker_is_alive_is_busy_to_who_settles_it(t: &Trial) -> Checked {
    let held = found_in_doubt(t, "a").await?;
    t.renew(&held, LONG).await?;
    let before = t.get(&held.key).await?;
    match t.claim(&held.key, &t.ask_settling()).await? {
        ClaimAnswer::Busy { retry_after } => t.left("the lease", retry_after, LONG)?,
        other => that(false, format!("its worker is alive, and the answer is {other:?}"))?,
    }
    t.unchanged(&held.key, &before).await?;
    same("renew", t.renew(&held, t.short()).await?, RenewAnswer::HeldInDoubt)?;
    t.pass(t.short()).await;
    same("recovered", t.grant(&held.key, &t.ask_settling()).await?.grant.recovered, true)?;
    same("renew", t.renew(&held, LONG).await?, RenewAnswer::Lost)
}

pub(crate) async fn what_the_worker_in_doubt_says_when_it_gives_up_counts(t: &Trial) -> Checked {
    let failed = found_in_doubt(t, "failed").await?;
    for _ in 0..2 {
        same("release", t.release(&failed, ReleaseCause::Failed).await?, ReleaseAnswer::Released)?;
    }
    let next = t.grant(&failed.key, &t.ask_in_doubt()).await?.grant;
    same("attempt and recovered", (next.attempt, next.recovered), (2, false))?;

    let unused = found_in_doubt(t, "unused").await?;
    same("release", t.release(&unused, ReleaseCause::Unused).await?, ReleaseAnswer::Released)?;
    let next = t.grant(&unused.key, &t.ask_in_doubt()).await?.grant;
    same("attempt and recovered", (next.attempt, next.recovered), (1, false))?;

    for cause in [ReleaseCause::Abandoned, ReleaseCause::Doubtful] {
        let held = found_in_doubt(t, &format!("{cause:?}")).await?;
        t.renew(&held, LONG).await?;
        for _ in 0..2 {
            same("release", t.release(&held, cause).await?, ReleaseAnswer::InDoubt)?;
        }
        same("claim", t.claim(&held.key, &t.ask()).await?, ClaimAnswer::InDoubt)?;
        // The worker has given up, so nobody waits for its lease.
        t.grant(&held.key, &t.ask_settling()).await?;
    }
    Ok(())
}

pub(crate) async fn the_in_doubt_policy_of_a_later_attempt_counts(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring(&key, Stage::Released).await?;
    t.grant(&key, &t.ask_in_doubt().with_lease(t.short())).await?;
    t.pass(t.short()).await;
    same("claim", t.claim(&key, &t.ask()).await?, ClaimAnswer::InDoubt)
}
