//! Leases that ran out under the `in_doubt` policy.

use crate::protocol::{
    Claim, ClaimAnswer, CompleteAnswer, OnCrash, ReleaseAnswer, ReleaseCause, RenewAnswer, State,
};
use crate::testing::conformance::stage::Stage;
use crate::testing::conformance::trial::{Checked, LONG, Trial, same, that};

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
    let own = Claim { owner: held.owner, ..t.ask() };
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
    t.bring_with(&key, Stage::InDoubt, Claim { ttl: t.short(), ..t.ask_in_doubt() }).await?;
    t.pass(t.short() * 3).await;
    t.purge(1_000).await?;
    same("claim", t.claim(&key, &t.ask()).await?, ClaimAnswer::InDoubt)
}

pub(crate) async fn a_lapsed_lease_under_in_doubt_never_expires(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring_with(&key, Stage::Lapsed, Claim { ttl: t.short(), ..t.ask_in_doubt() }).await?;
    t.pass(t.short() * 3).await;
    t.purge(1_000).await?;
    same("claim", t.claim(&key, &t.ask()).await?, ClaimAnswer::InDoubt)
}

pub(crate) async fn a_renewed_lease_under_in_doubt_never_expires(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let request = Claim { lease: t.short(), ttl: t.short(), ..t.ask_in_doubt() };
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
    let doubted = t.key("doubted")?;
    let held = t.bring_with(&doubted, Stage::Lapsed, t.ask_in_doubt()).await?;
    same("claim", t.claim(&doubted, &t.ask()).await?, ClaimAnswer::InDoubt)?;
    same("complete", t.complete(&held, b"r").await?, CompleteAnswer::Lost)?;
    same("renew", t.renew(&held, LONG).await?, RenewAnswer::Lost)?;
    same("release", t.release(&held, ReleaseCause::Failed).await?, ReleaseAnswer::Lost)?;
    same("state", t.record(&doubted).await?.state, State::InDoubt)
}

pub(crate) async fn the_in_doubt_policy_of_a_later_attempt_counts(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring(&key, Stage::Released).await?;
    t.grant(&key, &Claim { lease: t.short(), ..t.ask_in_doubt() }).await?;
    t.pass(t.short()).await;
    same("claim", t.claim(&key, &t.ask()).await?, ClaimAnswer::InDoubt)
}
