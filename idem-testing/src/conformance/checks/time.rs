//! Checks that wait: leases, lifetimes and times to retry end when they should, by the store's clock.

use std::time::Duration;

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Checked, DAY, LONG, Trial, same, that};
use idem_core::protocol::{ClaimAnswer, ReleaseCause, RenewAnswer};

pub(crate) async fn a_lease_ends_at_its_last_microsecond_and_not_before(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.grant(&key, &t.ask_short()).await?;
    if t.is_exact() {
        let micro = Duration::from_micros(1);
        t.pass(t.short() - micro).await;
        same("what is left", t.busy(&key).await?, micro)?;
        t.pass(micro).await;
    } else {
        t.pass(t.short()).await;
    }
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

pub(crate) async fn a_lifetime_ends_at_its_last_microsecond_and_not_before(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.take(&key).await?;
    t.complete_with(&key, &held.completion("r").with_ttl(t.short())).await?;
    if t.is_exact() {
        let micro = Duration::from_micros(1);
        t.pass(t.short() - micro).await;
        t.replay(&key).await?;
        t.pass(micro).await;
    } else {
        t.pass(t.short()).await;
    }
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
