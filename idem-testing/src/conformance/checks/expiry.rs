//! Checks that exactly the records past their lifetime are absent, deleted or not.

use std::time::Duration;

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Checked, DAY, LONG, Trial, same, value};
use idem_core::protocol::{CompleteAnswer, ReleaseAnswer, ReleaseCause, RenewAnswer, Resolution, Verdict};

const OVER: [Stage; 2] = [Stage::Expired, Stage::ExpiredInFlight];

pub(crate) async fn an_expired_record_is_absent(t: &Trial) -> Checked {
    for stage in OVER {
        let key = t.key(format!("{stage:?}"))?;
        t.bring(&key, stage).await?;
        same("record", t.get(&key).await?, None).map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn an_expired_key_starts_anew(t: &Trial) -> Checked {
    for stage in OVER {
        let key = t.key(format!("{stage:?}"))?;
        t.bring(&key, stage).await?;
        let grant = t.take(&key).await.map_err(|broken| broken.at(stage))?.grant;
        same("attempt", grant.attempt, 1).map_err(|broken| broken.at(stage))?;
        same("recovered", grant.recovered, false).map_err(|broken| broken.at(stage))?;
        let record = t.record(&key).await?;
        same("lease", record.lease_until, record.created_at.after(LONG))?;
    }
    Ok(())
}

pub(crate) async fn an_expired_key_starts_anew_for_its_old_owner_too(t: &Trial) -> Checked {
    for stage in OVER {
        let key = t.key(format!("{stage:?}"))?;
        let held = t.bring(&key, stage).await?;
        let again = t.grant(&key, &t.ask().with_owner(held.owner)).await?.grant;
        same("attempt", again.attempt, 1).map_err(|broken| broken.at(stage))?;
        same("a new fence", again.fence > held.grant.fence, true).map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn an_owner_of_an_expired_record_comes_too_late(t: &Trial) -> Checked {
    for stage in OVER {
        let key = t.key(format!("{stage:?}"))?;
        let held = t.bring(&key, stage).await?;
        same("complete", t.complete(&held, b"late").await?, CompleteAnswer::Lost)?;
        same("renew", t.renew(&held, LONG).await?, RenewAnswer::Lost)?;
        same("release", t.release(&held, ReleaseCause::Failed).await?, ReleaseAnswer::Lost)?;
        same("record", t.get(&key).await?, None).map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn every_kind_of_record_expires(t: &Trial) -> Checked {
    let failed = t.key("failed")?;
    let held = t.take(&failed).await?;
    let request = held.completion("r").with_verdict(Verdict::Failed).with_ttl(t.short());
    t.complete_with(&failed, &request).await?;
    let released = t.key("released")?;
    t.bring_with(&released, Stage::Released, t.ask().with_ttl(t.short())).await?;
    let resolved = t.key("resolved")?;
    t.bring_with(&resolved, Stage::InDoubt, t.ask().with_ttl(t.short())).await?;
    t.resolve(&resolved, &Resolution::Record(Verdict::Completed, value("word"))).await?;
    t.pass(t.short()).await;
    for key in [failed, released, resolved] {
        same("attempt", t.take(&key).await?.grant.attempt, 1)?;
    }
    Ok(())
}

pub(crate) async fn a_result_is_not_kept_by_the_lifetime_of_its_claim(t: &Trial) -> Checked {
    let shorter = t.key("shorter")?;
    let held = t.grant(&shorter, &t.ask().with_ttl(DAY)).await?;
    t.complete_with(&shorter, &held.completion("r").with_ttl(t.short())).await?;
    let longer = t.key("longer")?;
    let held = t.grant(&longer, &t.ask().with_ttl(t.short())).await?;
    t.complete_with(&longer, &held.completion("r").with_ttl(DAY)).await?;
    t.pass(t.short() * 2).await;
    same("record", t.get(&shorter).await?, None)?;
    t.replay(&longer).await.map(|_| ())
}

pub(crate) async fn a_lifetime_counts_from_completion_and_not_from_creation(t: &Trial) -> Checked {
    let key = t.key("a")?;
    // Long in comparison with the waits of this check.
    let ttl = if t.is_exact() { t.short() * 4 } else { LONG };
    let held = t.grant(&key, &t.ask().with_ttl(ttl)).await?;
    t.pass(t.short() * 3).await;
    t.complete_with(&key, &held.completion("r").with_ttl(ttl)).await?;
    t.pass(t.short() * 3).await;
    t.replay(&key).await?;
    let record = t.record(&key).await?;
    same("expires_at", record.expires_at, record.completed_at.map(|at| at.after(ttl)))
}

pub(crate) async fn replays_do_not_lengthen_a_lifetime(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.take(&key).await?;
    t.complete_with(&key, &held.completion("r").with_ttl(t.short() * 2)).await?;
    t.pass(t.short()).await;
    t.claim(&key, &t.ask()).await?;
    t.pass(t.short()).await;
    same("record", t.get(&key).await?, None)
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

pub(crate) async fn a_lapsed_claim_is_kept_for_its_lifetime(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.bring(&key, Stage::Lapsed).await?;
    t.pass(t.short() * 3).await;
    t.purge(1_000).await?;
    same("owner", t.record(&key).await?.owner, held.owner)?;
    same("attempt", t.take(&key).await?.grant.attempt, 2)
}

pub(crate) async fn a_result_is_kept_for_a_hundred_years(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let century = DAY * 36_500;
    let held = t.take(&key).await?;
    t.complete_with(&key, &held.completion("r").with_ttl(century)).await?;
    let record = t.record(&key).await?;
    same("expires_at", record.expires_at, record.completed_at.map(|at| at.after(century)))?;
    t.pass(t.short()).await;
    t.purge(1_000).await?;
    t.replay(&key).await.map(|_| ())
}

pub(crate) async fn a_released_claim_keeps_its_attempts_until_it_expires(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.grant(&key, &t.ask().with_ttl(t.short())).await?;
    let release = held.release(ReleaseCause::Failed).with_retry_after(Duration::ZERO);
    t.release_with(&key, &release).await?;
    if t.is_exact() {
        t.pass(t.short() / 2).await;
        same("attempt", t.record(&key).await?.attempt, 1)?;
        t.pass(t.short() / 2).await;
    } else {
        t.pass(t.short()).await;
    }
    same("attempt", t.take(&key).await?.grant.attempt, 1)
}
