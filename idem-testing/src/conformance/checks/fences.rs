//! Checks that the fences of a key rise strictly, even after its record is gone.

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Checked, Trial, that};
use idem_core::RecordKey;
use idem_core::protocol::{Fence, ReleaseCause};

/// Makes the next grant, and checks that its fence exceeds `last`.
async fn rises(t: &Trial, key: &RecordKey, last: Fence) -> Checked<Fence> {
    let next = t.take(key).await?.grant.fence;
    that(next > last, format!("the fence was {last} and the next is {next}"))?;
    Ok(next)
}

pub(crate) async fn a_fence_rises_over_a_record_that_is_gone(t: &Trial) -> Checked {
    for stage in Stage::ALL {
        let key = t.key(format!("{stage:?}"))?;
        let held = t.bring(&key, stage).await?;
        let last = t.get(&key).await?.map_or(held.grant.fence, |record| record.fence);
        if stage.state().is_some() {
            t.forget(&key).await?;
        } else {
            t.purge(1_000).await?;
        }
        rises(t, &key, last).await.map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn a_fence_that_ran_ahead_of_the_clock_rises_over_being_forgotten(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let mut last = Fence::default();
    // Each claim adds at least one to the fence. So while the clock is paused, the fence gets ahead of the
    // clock.
    for _ in 0..100 {
        let held = t.take(&key).await?;
        last = held.grant.fence;
        t.release(&held, ReleaseCause::Failed).await?;
    }
    // From here on, each record is deleted right after its release or grant.
    for _ in 0..50 {
        t.forget(&key).await?;
        last = rises(t, &key, last).await?;
    }
    Ok(())
}
