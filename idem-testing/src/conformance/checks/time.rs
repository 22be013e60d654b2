//! Checks that leases, lifetimes and times to retry end by the store's clock. These checks wait for each end.
//! If the kit controls the time, the random histories also test each end to the microsecond.

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Checked, DAY, Trial, same};
use idem_core::protocol::{ClaimAnswer, ReleaseCause, RenewAnswer};

pub(crate) async fn a_lease_ends(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.grant(&key, &t.ask_short()).await?;
    t.pass(t.short()).await;
    same("recovered", t.take(&key).await?.grant.recovered, true)
}

pub(crate) async fn a_lease_and_a_lifetime_of_a_hundred_years_run(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let century = DAY * 36_500;
    let held = t.grant(&key, &t.ask().with_lease(century).with_ttl(century)).await?;
    t.left("the lease", held.grant.lease_left, century)?;
    t.pass(t.short()).await;
    t.left("the lease", t.busy(&key).await?, century - t.short())?;
    let record = t.record(&key).await?;
    same("lease", record.lease_until, record.created_at.after(century))?;
    same("lifetime", record.ttl, century)?;
    t.complete_with(&key, &held.completion("r").with_ttl(century)).await?;
    t.purge(1_000).await?;
    let record = t.record(&key).await?;
    same("expires_at", record.expires_at, record.completed_at.map(|at| at.after(century)))
}

pub(crate) async fn a_key_that_was_not_due_is_due(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.take(&key).await?;
    let release = held.release(ReleaseCause::Failed).with_retry_after(t.short());
    t.release_with(&key, &release).await?;
    t.pass(t.short()).await;
    same("attempt", t.take(&key).await?.grant.attempt, 2)
}

pub(crate) async fn a_lifetime_ends(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.take(&key).await?;
    t.complete_with(&key, &held.completion("r").with_ttl(t.short())).await?;
    t.pass(t.short()).await;
    same("record", t.get(&key).await?, None)?;
    same("attempt", t.take(&key).await?.grant.attempt, 1)
}

pub(crate) async fn what_is_in_doubt_or_can_be_never_expires(t: &Trial) -> Checked {
    let cautious = t.ask_in_doubt().with_ttl(t.short());
    let doubted = t.bring_with(&t.key("in doubt")?, Stage::InDoubt, cautious.clone()).await?;
    let lapsed = t.bring_with(&t.key("lapsed")?, Stage::Lapsed, cautious.clone()).await?;
    let renewed = t.grant(&t.key("renewed")?, &cautious).await?;
    same("renew", t.renew(&renewed, t.short()).await?, RenewAnswer::Held)?;
    t.pass(t.short() * 3).await;
    t.purge(1_000).await?;
    for held in [doubted, lapsed, renewed] {
        same("claim", t.claim(&held.key, &t.ask()).await?, ClaimAnswer::InDoubt)?;
    }
    Ok(())
}
