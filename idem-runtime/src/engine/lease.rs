//! The lease of one attempt: until when it is certainly held, and whether it is lost.
//!
//! The call's task and the renewal thread share it; both note the store's answers here.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::process::Process;

/// The lease of one attempt.
pub(super) struct Lease {
    pub(super) length: Duration,
    /// How long after a confirmation the call itself renews the lease.
    renewed_after: Duration,
    /// The last confirmed request.
    confirmed: Mutex<Sent>,
    lost: AtomicBool,
    doubted: AtomicBool,
    over: AtomicBool,
    pub(super) waker: AtomicWaker,
    /// Set when code outside the call's task first waits for the end of the lease; most bodies have none.
    outside: OnceLock<Box<Notify>>,
}

/// When a request was sent, and the lease that it asks for. If it is granted, the lease runs at least that long from then, however
/// late the answer comes.
#[derive(Clone, Copy)]
pub(super) struct Sent {
    /// On the runtime's clock, which a test may have paused.
    pub(super) runtime: Instant,
    /// On the clock of the renewal from outside, the machine's.
    machine: std::time::Instant,
    /// Shorter than the lease's length near a deadline.
    pub(super) lease: Duration,
}

impl Sent {
    pub(super) fn now(process: &Process, lease: Duration) -> Self {
        Self { runtime: Instant::now(), machine: process.clock(), lease }
    }
}

impl Lease {
    /// The lease of a claim, which was first sent at `sent`.
    pub(super) fn new(length: Duration, sent: Sent) -> Self {
        Self {
            length,
            renewed_after: length / 3,
            confirmed: Mutex::new(sent),
            lost: AtomicBool::new(false),
            doubted: AtomicBool::new(false),
            over: AtomicBool::new(false),
            waker: AtomicWaker::new(),
            outside: OnceLock::new(),
        }
    }

    /// The same lease, with at least `pause` between two renewals.
    pub(super) fn renewed_at_most_every(self, pause: Duration) -> Self {
        Self { renewed_after: self.renewed_after.max(pause), ..self }
    }

    fn confirmed(&self) -> MutexGuard<'_, Sent> {
        self.confirmed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store confirmed this renewal.
    pub(super) fn confirm(&self, sent: Sent) {
        let mut confirmed = self.confirmed();
        if confirmed.machine <= sent.machine {
            *confirmed = sent;
        }
    }

    /// The store said that this call does not hold the claim any more.
    pub(super) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        self.waker.wake();
        self.tell_outside();
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Notes that the key is in doubt, and returns whether that is new.
    pub(super) fn is_first_doubt(&self) -> bool {
        !self.doubted.swap(true, Ordering::AcqRel)
    }

    /// Whether the key is in doubt: an operator may take the claim away at any moment, also within the lease.
    pub(super) fn is_doubted(&self) -> bool {
        self.doubted.load(Ordering::Acquire)
    }

    /// Ends the renewal of the lease.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.tell_outside();
    }

    fn tell_outside(&self) {
        // Pairs with the fence in `ended`: either this code sees the waiter, or the waiter sees the value that was
        // stored before.
        fence(Ordering::SeqCst);
        if let Some(outside) = self.outside.get() {
            outside.notify_waiters();
        }
    }

    /// Returns when the lease is lost or its call has ended.
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

    /// Until when the lease is certainly held.
    pub(super) fn held_until(&self) -> Instant {
        let confirmed = *self.confirmed();
        later(confirmed.runtime, confirmed.lease)
    }

    /// Whether so little of the lease is left that it must be renewed before the body starts.
    pub(super) fn is_late(&self) -> bool {
        self.held_until().saturating_duration_since(Instant::now()) <= self.length / 3
    }

    /// When the call itself renews the lease: usually after a third of its length, or up to a thirty-second of the
    /// length earlier. So leases of the same length are renewed at a few common instants, and the store can take them
    /// in batches.
    pub(super) fn renew_at(&self, process: &Process) -> Instant {
        let at = later(self.confirmed().runtime, self.renewed_after);
        let since = at.saturating_duration_since(Instant::from_std(process.epoch()));
        let over = since.as_nanos() % (self.length / 32).as_nanos().max(1);
        at.checked_sub(Duration::from_nanos(u64::try_from(over).unwrap_or_default())).unwrap_or(at)
    }

    /// How long after a failed renewal the next one is sent.
    pub(super) fn pause_after_failure(&self) -> Duration {
        (self.renewed_after / 4).min(LONGEST_PAUSE)
    }

    /// When the renewal thread renews the lease, if the call did not.
    pub(super) fn keep_at(&self) -> std::time::Instant {
        let confirmed = self.confirmed().machine;
        confirmed.checked_add(self.renewed_after * 3 / 2).unwrap_or_else(|| confirmed + FAR)
    }
}

/// Upper limit of the pause after a failed renewal.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Longer than any process runs, and small enough to be added to an instant.
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
            let sent = Sent::now(&Process::current(), length);
            let at = Lease::new(length, sent).renew_at(&Process::current());
            let after = at - sent.runtime;
            assert!(after <= length / 3 && after > length / 3 - length / 32, "{after:?}");
            moments.insert(at);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(moments.len() <= 12, "ten seconds of calls were renewed at {} moments", moments.len());
    }
}
