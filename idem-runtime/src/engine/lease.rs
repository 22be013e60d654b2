//! The lease of one attempt: until when it is certainly held, and whether it is lost.
//!
//! Shared by the call's own upkeep and the keeper; both write here what the store said.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
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

    /// When the call itself renews it.
    pub(super) fn renew_at(&self) -> Instant {
        later(self.confirmed().runtime, self.length / 3)
    }

    /// When the keeper renews it, if the call did not.
    pub(super) fn keep_at(&self) -> std::time::Instant {
        let confirmed = self.confirmed().machine;
        confirmed.checked_add(self.length / 2).unwrap_or_else(|| confirmed + FAR)
    }
}

/// Later than any process lives, and certainly an instant.
const FAR: Duration = Duration::from_secs(60 * 60 * 24 * 365);

fn later(instant: Instant, by: Duration) -> Instant {
    instant.checked_add(by).unwrap_or_else(|| instant + FAR)
}
