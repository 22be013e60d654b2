//! Checks that the fences of a key rise strictly, whatever happens in between.

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Checked, LONG, Trial, same, that};
use idem_core::RecordKey;
use idem_core::protocol::{Fence, ReleaseCause, Resolution};

/// Makes the next grant, and checks that its fence exceeds `last`.
async fn rises(t: &Trial, key: &RecordKey, last: Fence) -> Checked<Fence> {
    let next = t.take(key).await?.grant.fence;
    that(next > last, format!("the fence was {last} and the next is {next}"))?;
    Ok(next)
}

pub(crate) async fn a_fence_rises_over_a_release(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let mut last = Fence::default();
    for _ in 0..50 {
        let held = t.take(&key).await?;
        that(held.grant.fence > last, format!("the fence was {last} and the next is {}", held.grant.fence))?;
        last = held.grant.fence;
        t.release(&held, ReleaseCause::Failed).await?;
    }
    Ok(())
}

pub(crate) async fn a_fence_rises_over_a_takeover(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.bring(&key, Stage::Lapsed).await?;
    rises(t, &key, held.grant.fence).await.map(|_| ())
}

pub(crate) async fn a_fence_rises_over_expiry(t: &Trial) -> Checked {
    for stage in [Stage::Expired, Stage::ExpiredInFlight] {
        let key = t.key(format!("{stage:?}"))?;
        let held = t.bring(&key, stage).await?;
        rises(t, &key, held.grant.fence).await.map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn a_fence_rises_over_a_purge(t: &Trial) -> Checked {
    for stage in [Stage::Expired, Stage::ExpiredInFlight] {
        let key = t.key(format!("{stage:?}"))?;
        let held = t.bring(&key, stage).await?;
        t.purge(1_000).await?;
        rises(t, &key, held.grant.fence).await.map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn a_fence_rises_over_being_forgotten(t: &Trial) -> Checked {
    for stage in Stage::live() {
        let key = t.key(format!("{stage:?}"))?;
        t.bring(&key, stage).await?;
        let last = t.record(&key).await?.fence;
        t.forget(&key).await?;
        rises(t, &key, last).await.map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn a_fence_rises_over_being_forgotten_at_once(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let mut last = Fence::default();
    for _ in 0..50 {
        last = rises(t, &key, last).await?;
        t.forget(&key).await?;
    }
    Ok(())
}

pub(crate) async fn a_fence_that_ran_ahead_of_the_clock_rises_over_being_forgotten(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let mut last = Fence::default();
    // Each release and claim within one microsecond adds one, so the fence gets ahead of the clock.
    for _ in 0..100 {
        let held = t.take(&key).await?;
        last = held.grant.fence;
        t.release(&held, ReleaseCause::Failed).await?;
    }
    t.forget(&key).await?;
    rises(t, &key, last).await.map(|_| ())
}

pub(crate) async fn a_fence_rises_over_an_operators_word(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.bring(&key, Stage::InDoubt).await?;
    t.resolve(&key, &Resolution::Release).await?;
    rises(t, &key, held.grant.fence).await.map(|_| ())
}

pub(crate) async fn a_fence_rises_over_a_whole_life(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let mut last = Fence::default();
    for _ in 0..2 {
        for stage in [
            Stage::Released,
            Stage::Forgotten,
            Stage::TakenOver,
            Stage::Forgotten,
            Stage::Expired,
            Stage::InDoubt,
            Stage::Completed,
        ] {
            let held = t.bring(&key, stage).await?;
            that(
                held.grant.fence > last,
                format!("before {stage:?} the fence was {last} and the next is {}", held.grant.fence),
            )?;
            last = t.get(&key).await?.map_or(held.grant.fence, |record| record.fence);
            if matches!(stage, Stage::TakenOver | Stage::InDoubt | Stage::Completed) {
                t.forget(&key).await?;
            }
        }
    }
    Ok(())
}

pub(crate) async fn a_fence_does_not_move_without_a_grant(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let request = t.ask();
    let held = t.grant(&key, &request).await?;
    t.renew(&held, LONG).await?;
    t.grant(&key, &request).await?;
    t.busy(&key).await?;
    same("fence", t.record(&key).await?.fence, held.grant.fence)?;
    t.complete(&held, b"r").await?;
    t.replay(&key).await?;
    same("fence", t.record(&key).await?.fence, held.grant.fence)
}

pub(crate) async fn the_fence_of_the_grant_is_the_one_recorded(t: &Trial) -> Checked {
    let key = t.key("a")?;
    for _ in 0..3 {
        let held = t.grant(&key, &t.ask()).await?;
        same("fence", t.record(&key).await?.fence, held.grant.fence)?;
        t.release(&held, ReleaseCause::Failed).await?;
        same("fence", t.record(&key).await?.fence, held.grant.fence)?;
    }
    Ok(())
}
