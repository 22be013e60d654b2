//! Purges expired records in the background. Runs in the stores' own runtime, because that runtime outlives
//! the caller's runtime, and no test pauses its clock.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use idem_core::StoreError;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::own_runtime::own_runtime;

/// How many records one purge deletes at most, so that a backlog does not keep the server busy.
const MOST: usize = 100_000;

/// If the last purge reached its limit, the pause before the next purge is divided by this number.
const SOONER: u32 = 20;

/// Purges a store from time to time, until this value or the store is dropped.
#[derive(Debug)]
pub struct Purging(AbortHandle);

impl Purging {
    /// Calls `purge` again and again, with `target` and a limit, after pauses of about `every`. The pauses
    /// are random, so that the processes of a fleet do not all purge at once. After a purge that reached its
    /// limit, the pause is shorter.
    ///
    /// Holds `target` only while it purges. If purges fail one after another, the event `purge_failed`
    /// reports only the first error. Returns `None` if `every` is `None`, or if the stores' own runtime
    /// cannot be started.
    #[must_use]
    pub fn start<T, F>(
        target: &Arc<T>,
        every: Option<Duration>,
        purge: impl Fn(Arc<T>, usize) -> F + Send + 'static,
    ) -> Option<Self>
    where
        T: Send + Sync + 'static,
        F: Future<Output = Result<usize, StoreError>> + Send,
    {
        let (every, target) = (every?, Arc::downgrade(target));
        let work = async move {
            let (mut is_enough, mut has_failed) = (true, false);
            loop {
                sleep(pause(every, is_enough, RandomState::new().hash_one(()))).await;
                let Some(target) = target.upgrade() else { return };
                is_enough = match purge(target, MOST).await {
                    Ok(purged) => {
                        has_failed = false;
                        purged < MOST
                    }
                    Err(error) => {
                        if !std::mem::replace(&mut has_failed, true) {
                            tracing::warn!(
                                target: "idem",
                                event = "purge_failed",
                                %error,
                                "expired records were not deleted"
                            );
                        }
                        true
                    }
                };
            }
        };
        Some(Self(own_runtime().ok()?.spawn(work).abort_handle()))
    }
}

impl Drop for Purging {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The time until the next purge: from half of `every` to one and a half times `every`. It is shorter by the
/// factor [`SOONER`] if the last purge reached its limit.
fn pause(every: Duration, is_enough: bool, random: u64) -> Duration {
    let every = if is_enough { every } else { every / SOONER };
    let percent = u32::try_from(50 + random % 100).unwrap_or(100);
    every.saturating_mul(percent) / 100
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    use super::*;

    /// Waits in real time, because one of these tests pauses tokio's clock.
    fn until(what: &str, condition: impl Fn() -> bool) {
        let begin = Instant::now();
        while !condition() {
            assert!(begin.elapsed() < Duration::from_secs(20), "waited in vain until {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    const OFTEN: Option<Duration> = Some(Duration::from_millis(1));

    #[tokio::test(start_paused = true)]
    async fn a_store_is_purged_on_a_real_clock_after_errors_too_until_it_is_dropped() {
        let (purges, witness) = (Arc::new(AtomicUsize::new(0)), Arc::new(()));
        let kept = witness.clone();
        let purging = Purging::start(&purges, OFTEN, move |purges, limit| {
            let _kept = &kept;
            assert_eq!(limit, MOST);
            let answer = match purges.fetch_add(1, Ordering::SeqCst) {
                1 => Err(StoreError::unavailable("down")),
                _ => Ok(0),
            };
            async { answer }
        });
        until("it was purged again after an error", || purges.load(Ordering::SeqCst) > 3);
        drop(purging);
        until("the purging has ended", || Arc::strong_count(&witness) == 1);
        assert_eq!(Arc::strong_count(&purges), 1);
    }

    #[test]
    fn purging_does_not_keep_what_it_purges_and_can_be_turned_off() {
        let (target, witness) = (Arc::new(()), Arc::new(()));
        let kept = witness.clone();
        let purging = Purging::start(&target, OFTEN, move |_, _| {
            let _kept = &kept;
            async { Ok(0) }
        });
        drop(target);
        until("the purging has ended", || Arc::strong_count(&witness) == 1);
        drop(purging);
        assert!(Purging::start(&Arc::new(()), None, |_, _| async { Ok(0) }).is_none());
    }

    #[test]
    fn purges_of_a_fleet_spread_and_one_that_was_not_enough_is_soon_followed_by_another() {
        let minute = Duration::from_secs(60);
        assert_eq!(pause(minute, true, 0), minute / 2);
        assert_eq!(pause(minute, true, 50), minute);
        assert_eq!(pause(minute, true, 99), minute * 149 / 100);
        assert_eq!(pause(minute, false, 50), minute / SOONER);
        let pauses: std::collections::BTreeSet<_> =
            (0..50).map(|_| pause(minute, true, RandomState::new().hash_one(()))).collect();
        assert!(pauses.len() > 10, "{pauses:?}");
    }
}
