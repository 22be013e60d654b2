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
        t.purge(1_000).await?;
    }
    for (stage, before, key) in kept {
        t.unchanged(&key, &before).await.map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn a_purge_deletes_what_expired_once(t: &Trial) -> Checked {
    expired(t, 5).await?;
    let mut deleted = 0;
    for _ in 0..20 {
        deleted += t.purge(1_000).await?;
    }
    // A store may already have deleted some by itself.
    that(deleted <= 5, format!("5 expired and {deleted} were deleted"))?;
    that(t.purge(1_000).await? == 0, "there is nothing left to delete")?;
    for number in 0..5 {
        same("record", t.get(&t.key(format!("expired {number}"))?).await?, None)?;
    }
    Ok(())
}

pub(crate) async fn a_purge_keeps_to_its_limit(t: &Trial) -> Checked {
    expired(t, 7).await?;
    for limit in [0, 1, 2, 3] {
        let deleted = t.purge(limit).await?;
        that(deleted <= limit, format!("at most {limit} should be deleted, and {deleted} were"))?;
    }
    Ok(())
}

pub(crate) async fn purges_come_to_an_end(t: &Trial) -> Checked {
    expired(t, 10).await?;
    for _ in 0..10_000 {
        if t.purge(3).await? == 0 {
            return Ok(());
        }
    }
    that(false, "a purge always finds something to delete")
}

pub(crate) async fn a_purge_of_nothing_deletes_nothing(t: &Trial) -> Checked {
    let deleted = t.purge(1_000).await?;
    that(deleted == 0, format!("the store is fresh, and {deleted} were deleted"))
}

pub(crate) async fn a_purge_without_end_is_allowed(t: &Trial) -> Checked {
    expired(t, 3).await?;
    let deleted = t.purge(usize::MAX).await?;
    that(deleted <= 3, format!("3 expired and {deleted} were deleted"))
}

pub(crate) async fn a_purge_does_not_delete_a_key_that_came_back(t: &Trial) -> Checked {
    for stage in [Stage::Expired, Stage::ExpiredInFlight] {
        let key = t.key(format!("{stage:?}"))?;
        t.bring(&key, stage).await?;
        let held = t.take(&key).await?;
        t.purge(1_000).await?;
        same("owner", t.record(&key).await?.owner, held.owner).map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn a_key_starts_anew_after_it_was_purged(t: &Trial) -> Checked {
    for stage in [Stage::Expired, Stage::ExpiredInFlight] {
        let key = t.key(format!("{stage:?}"))?;
        t.bring(&key, stage).await?;
        t.purge(1_000).await?;
        let grant = t.take(&key).await?.grant;
        same("attempt", grant.attempt, 1).map_err(|broken| broken.at(stage))?;
        same("recovered", grant.recovered, false).map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}
