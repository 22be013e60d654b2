//! The lease of one attempt: until when it is certainly held, and whether it is lost.
//!
//! Shared by the call's own upkeep and the keeper; both write here what the store said.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::time::Instant;

/// The lease of one attempt.
pub(super) struct Lease {
    pub(super) length: Duration,
    /// When the request was sent that the store last confirmed the lease by: the lease runs at least
    /// its length from there.
    confirmed: Mutex<Sent>,
    lost: AtomicBool,
    over: AtomicBool,
    pub(super) waker: AtomicWaker,
}

/// When a request was sent.
#[derive(Clone, Copy)]
pub(super) struct Sent {
    /// By the runtime's clock, which a test may have paused.
    pub(super) runtime: Instant,
    /// By the machine's, which the keeper goes by.
    machine: std::time::Instant,
}

impl Sent {
    pub(super) fn now() -> Self {
        Self { runtime: Instant::now(), machine: std::time::Instant::now() }
    }
}

impl Lease {
    /// A lease of which `left` was left when the claim, sent at `sent`, was answered.
    pub(super) fn new(length: Duration, left: Duration, sent: Sent) -> Self {
        // An answer that was asked again may tell of a lease that runs already.
        let used = length.saturating_sub(left);
        let confirmed = Sent {
            runtime: sent.runtime.checked_sub(used).unwrap_or(sent.runtime),
            machine: sent.machine.checked_sub(used).unwrap_or(sent.machine),
        };
        Self {
            length,
            confirmed: Mutex::new(confirmed),
            lost: AtomicBool::new(false),
            over: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        }
    }

    fn confirmed(&self) -> MutexGuard<'_, Sent> {
        self.confirmed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store confirmed a renewal that was sent at this moment.
    pub(super) fn confirm(&self, sent: Sent) {
        let mut confirmed = self.confirmed();
        confirmed.runtime = confirmed.runtime.max(sent.runtime);
        confirmed.machine = confirmed.machine.max(sent.machine);
    }

    /// The store said that the claim is another's.
    pub(super) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        self.waker.wake();
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Nothing is to be renewed any more.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire) || self.is_lost()
    }

    /// Until when it is certainly held.
    pub(super) fn held_until(&self) -> Instant {
        later(self.confirmed().runtime, self.length)
    }

    /// Whether so much of it is over that it is to be renewed before anything is done under it.
    pub(super) fn is_late(&self) -> bool {
        self.held_until().saturating_duration_since(Instant::now()) <= self.length / 3
    }

    /// When the call itself renews it: when a third of it is over, or up to a thirty-second of it earlier, so that
    /// the many leases of one length are renewed at a few moments and a store takes each lot at once.
    pub(super) fn renew_at(&self) -> Instant {
        let at = later(self.confirmed().runtime, self.length / 3);
        let since = at.saturating_duration_since(Instant::from_std(*EPOCH));
        let over = since.as_nanos() % (self.length / 32).as_nanos().max(1);
        at.checked_sub(Duration::from_nanos(u64::try_from(over).unwrap_or_default())).unwrap_or(at)
    }

    /// When the keeper renews it, if the call did not.
    pub(super) fn keep_at(&self) -> std::time::Instant {
        let confirmed = self.confirmed().machine;
        confirmed.checked_add(self.length / 2).unwrap_or_else(|| confirmed + FAR)
    }
}

/// What the moments of renewal are counted from.
static EPOCH: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);

/// Later than any process lives, and certainly an instant.
const FAR: Duration = Duration::from_secs(60 * 60 * 24 * 365);

fn later(instant: Instant, by: Duration) -> Instant {
    instant.checked_add(by).unwrap_or_else(|| instant + FAR)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn leases_of_one_length_are_renewed_at_few_moments_and_none_late() {
        let length = Duration::from_secs(30);
        let mut moments = BTreeSet::new();
        for _ in 0..10_000 {
            let sent = Sent::now();
            let at = Lease::new(length, length, sent).renew_at();
            let after = at - sent.runtime;
            assert!(after <= length / 3 && after > length / 3 - length / 32, "{after:?}");
            moments.insert(at);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(moments.len() <= 12, "ten seconds of calls were renewed at {} moments", moments.len());
    }
}
