//! The lease of one attempt: until when it is certainly held, and whether it is lost.
//!
//! Shared by the call's task and the renewal thread; both write here what the store answered.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The lease of one attempt.
pub(super) struct Lease {
    pub(super) length: Duration,
    /// How long after it was confirmed the call itself renews it.
    renewed_after: Duration,
    /// When the request was sent that the store last confirmed the lease by: the lease runs at least
    /// its length from there.
    confirmed: Mutex<Sent>,
    lost: AtomicBool,
    doubted: AtomicBool,
    over: AtomicBool,
    pub(super) waker: AtomicWaker,
    /// There once somebody outside the call's task asks: most bodies have no such work.
    outside: OnceLock<Box<Notify>>,
}

/// When a request was sent.
#[derive(Clone, Copy)]
pub(super) struct Sent {
    /// By the runtime's clock, which a test may have paused.
    pub(super) runtime: Instant,
    /// By the machine's, which the renewal thread uses.
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
            renewed_after: length / 3,
            confirmed: Mutex::new(confirmed),
            lost: AtomicBool::new(false),
            doubted: AtomicBool::new(false),
            over: AtomicBool::new(false),
            waker: AtomicWaker::new(),
            outside: OnceLock::new(),
        }
    }

    /// The same lease, renewed no more often than that.
    pub(super) fn renewed_at_most_every(self, pause: Duration) -> Self {
        Self { renewed_after: self.renewed_after.max(pause), ..self }
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
        self.tell_outside();
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// The key is in doubt; whether that is new.
    pub(super) fn is_first_doubt(&self) -> bool {
        !self.doubted.swap(true, Ordering::AcqRel)
    }

    /// Nothing is to be renewed any more.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.tell_outside();
    }

    fn tell_outside(&self) {
        // With the one in `ended`: either this sees who waits, or who waits sees what was stored before.
        fence(Ordering::SeqCst);
        if let Some(outside) = self.outside.get() {
            outside.notify_waiters();
        }
    }

    /// Returns once it is lost, or nothing is done under it any more.
    pub(super) async fn ended(&self) {
        let outside = self.outside.get_or_init(Box::default);
        let mut told = pin!(outside.notified());
        told.as_mut().enable();
        fence(Ordering::SeqCst);
        if !self.is_over() {
            told.await;
        }
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

    /// When the call itself renews it: usually when a third of it is over, or up to a thirty-second of it earlier, so that
    /// the many leases of one length are renewed at a few moments and a store takes each lot at once.
    pub(super) fn renew_at(&self) -> Instant {
        let at = later(self.confirmed().runtime, self.renewed_after);
        let since = at.saturating_duration_since(Instant::from_std(*EPOCH));
        let over = since.as_nanos() % (self.length / 32).as_nanos().max(1);
        at.checked_sub(Duration::from_nanos(u64::try_from(over).unwrap_or_default())).unwrap_or(at)
    }

    /// How long after a failed renewal the next is sent.
    pub(super) fn pause_after_failure(&self) -> Duration {
        (self.renewed_after / 4).min(LONGEST_PAUSE)
    }

    /// When the renewal thread renews it, if the call did not.
    pub(super) fn keep_at(&self) -> std::time::Instant {
        let confirmed = self.confirmed().machine;
        confirmed.checked_add(self.renewed_after * 3 / 2).unwrap_or_else(|| confirmed + FAR)
    }
}

/// What the moments of renewal are counted from.
static EPOCH: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);

/// How long after a failed renewal the next is sent, at the most.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

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
