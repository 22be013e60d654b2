//! Checks that a purge deletes expired records and nothing else.

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Checked, Trial, same, that};

/// Makes this many expired records.
async fn expired(t: &Trial, count: usize) -> Checked {
    for number in 0..count {
        let key = t.key(format!("expired {number}"))?;
        let held = t.take(&key).await?;
        t.complete_with(&key, &held.completion("r").with_ttl(t.short())).await?;
    }
    t.pass(t.short()).await;
    Ok(())
}

pub(crate) async fn a_purge_deletes_no_live_record(t: &Trial) -> Checked {
    let mut kept = Vec::new();
    for stage in Stage::live() {
        let key = t.key(format!("{stage:?}"))?;
        t.bring(&key, stage).await?;
        kept.push((stage, t.get(&key).await?, key));
    }
    expired(t, 3).await?;
    for _ in 0..3 {
        t.purge(usize::MAX).await?;
    }
    for (stage, before, key) in kept {
        t.unchanged(&key, &before).await.map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn a_purge_keeps_to_its_limit_and_deletes_what_expired_once(t: &Trial) -> Checked {
    expired(t, 7).await?;
    let mut sum = 0;
    for limit in [0, 1, 2, 3].into_iter().chain([1; 20]) {
        let deleted = t.purge(limit).await?;
        that(deleted <= limit, format!("at most {limit} should be deleted, and {deleted} were"))?;
        sum += deleted;
    }
    // A store may already have deleted some expired records by itself.
    that(sum <= 7, format!("7 expired and {sum} were deleted"))?;
    that(t.purge(1_000).await? == 0, "there is nothing left to delete")?;
    for number in 0..7 {
        same("record", t.get(&t.key(format!("expired {number}"))?).await?, None)?;
    }
    Ok(())
}

pub(crate) async fn a_key_starts_anew_before_and_after_it_was_purged(t: &Trial) -> Checked {
    for stage in [Stage::Expired, Stage::ExpiredInFlight] {
        let back = t.key(format!("{stage:?} came back"))?;
        t.bring(&back, stage).await?;
        let held = t.take(&back).await?;
        let key = t.key(format!("{stage:?}"))?;
        t.bring(&key, stage).await?;
        t.purge(1_000).await?;
        same("owner", t.record(&back).await?.owner, held.owner).map_err(|broken| broken.at(stage))?;
        let grant = t.take(&key).await?.grant;
        same("attempt", grant.attempt, 1).map_err(|broken| broken.at(stage))?;
        same("recovered", grant.recovered, false).map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}
