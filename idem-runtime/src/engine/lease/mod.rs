//! The lease of one attempt: until when it is certainly held, whether it is lost, and its renewal in the
//! call's own task.
//!
//! The call's task and the renewal thread share it; both note the store's answers here. The times of a lease, each counted from
//! when the last confirmed request was sent:
//!
//! | time | what happens then | by whose clock |
//! |---|---|---|
//! | [`renewal_at`](Lease::renewal_at), a third of its length or a little earlier | the call's task renews it | the runtime's |
//! | [`outside_renewal_at`](Lease::outside_renewal_at), half of its length | the thread renews it, if the task did not | the machine's |
//! | [`is_late`](Lease::is_late), two thirds of its length | a grant that arrives later is renewed before its body starts | the runtime's |
//! | [`held_until`](Lease::held_until), its length, or less near a deadline | until then it is certainly held | the runtime's |
//! | [`pause_after_failure`](Lease::pause_after_failure) later, up to a second | a renewal that failed is sent again | that of the renewal |

pub(super) mod thread;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::select;
use futures_util::task::AtomicWaker;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::engine::claim::claimed::AnyClaim;
use crate::engine::process::Process;

/// The lease of one attempt.
pub(crate) struct Lease {
    pub(crate) length: Duration,
    /// How long after a confirmation the call itself renews the lease.
    renewal_interval: Duration,
    /// The last confirmed request.
    confirmed: Mutex<Sent>,
    lost: AtomicBool,
    doubted: AtomicBool,
    over: AtomicBool,
    waker: AtomicWaker,
    /// Set when code outside the call's task first waits for the end of the lease; most bodies have none.
    outside: OnceLock<Box<Notify>>,
}

/// When a request was sent, and the lease that it asks for. If it is granted, the lease runs at least that long from then, however
/// late the answer comes.
#[derive(Clone, Copy)]
pub(crate) struct Sent {
    /// On the runtime's clock, which a test may have paused.
    pub(crate) runtime: Instant,
    /// On the clock of the renewal from outside, the machine's.
    machine: std::time::Instant,
    /// Shorter than the lease's length near a deadline.
    pub(crate) lease: Duration,
}

impl Sent {
    pub(crate) fn now(process: &Process, lease: Duration) -> Self {
        Self { runtime: Instant::now(), machine: process.clock(), lease }
    }
}

impl Lease {
    /// The lease of a claim, which was first sent at `sent`. A deadline may make it shorter than `uncut`.
    pub(crate) fn new(length: Duration, uncut: Duration, sent: Sent) -> Self {
        // Renewals cannot extend a lease that a deadline cuts short; they only find out whether it is lost.
        let pause = if length < uncut { (uncut / 3).min(LONGEST_PAUSE) } else { Duration::ZERO };
        Self {
            length,
            renewal_interval: (length / 3).max(pause),
            confirmed: Mutex::new(sent),
            lost: AtomicBool::new(false),
            doubted: AtomicBool::new(false),
            over: AtomicBool::new(false),
            waker: AtomicWaker::new(),
            outside: OnceLock::new(),
        }
    }

    fn confirmed(&self) -> MutexGuard<'_, Sent> {
        self.confirmed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store confirmed this renewal.
    pub(crate) fn confirm(&self, sent: Sent) {
        let mut confirmed = self.confirmed();
        if confirmed.machine <= sent.machine {
            *confirmed = sent;
        }
    }

    /// The store said that this call does not hold the claim any more.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        self.waker.wake();
        self.notify_outside();
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Notes that the key is in doubt, and returns whether that is new.
    pub(crate) fn is_first_doubt(&self) -> bool {
        !self.doubted.swap(true, Ordering::AcqRel)
    }

    /// Whether the key is in doubt: an operator may take the claim away at any moment, also within the lease.
    pub(crate) fn is_doubted(&self) -> bool {
        self.doubted.load(Ordering::Acquire)
    }

    /// Ends the renewal of the lease.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.notify_outside();
    }

    fn notify_outside(&self) {
        // Pairs with the fence in `ended`: either this code sees the waiter, or the waiter sees the value that was
        // stored before.
        fence(Ordering::SeqCst);
        if let Some(outside) = self.outside.get() {
            outside.notify_waiters();
        }
    }

    /// Returns when the lease is lost or its call has ended.
    pub(crate) async fn ended(&self) {
        let outside = self.outside.get_or_init(Box::default);
        let mut notified = pin!(outside.notified());
        notified.as_mut().enable();
        fence(Ordering::SeqCst);
        if !self.is_over() {
            notified.await;
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire) || self.is_lost()
    }

    /// Until when the lease is certainly held.
    pub(crate) fn held_until(&self) -> Instant {
        let confirmed = *self.confirmed();
        later(confirmed.runtime, confirmed.lease)
    }

    /// Whether so little of the lease is left that it must be renewed before the body starts.
    pub(crate) fn is_late(&self) -> bool {
        self.held_until().saturating_duration_since(Instant::now()) <= self.length / 3
    }

    /// When the call itself renews the lease: usually after a third of its length, or up to a thirty-second of the
    /// length earlier. So leases of the same length are renewed at a few common instants, and the store can take them
    /// in batches.
    pub(crate) fn renewal_at(&self, process: &Process) -> Instant {
        let at = later(self.confirmed().runtime, self.renewal_interval);
        let since = at.saturating_duration_since(Instant::from_std(process.epoch));
        let over = since.as_nanos() % (self.length / 32).as_nanos().max(1);
        at.checked_sub(Duration::from_nanos(u64::try_from(over).unwrap_or_default())).unwrap_or(at)
    }

    /// How long after a failed renewal the next one is sent.
    pub(crate) fn pause_after_failure(&self) -> Duration {
        (self.renewal_interval / 4).min(LONGEST_PAUSE)
    }

    /// When the renewal thread renews the lease, if the call did not.
    pub(crate) fn outside_renewal_at(&self) -> std::time::Instant {
        let confirmed = self.confirmed().machine;
        confirmed.checked_add(self.renewal_interval * 3 / 2).unwrap_or_else(|| confirmed + FAR)
    }
}

/// Renews the lease of one attempt in the caller's own task, whenever it is due; ends when the lease is lost.
/// It has no timer until it is polled first, when the body is pending.
pub(crate) async fn renewed_until_lost(claim: Arc<dyn AnyClaim>) {
    let (lease, process) = (&claim.held().lease, &claim.call().process);
    let lost = poll_fn(|cx| {
        lease.waker.register(cx.waker());
        if lease.is_lost() { Poll::Ready(()) } else { Poll::Pending }
    });
    let renewals = async {
        let mut next = lease.renewal_at(process);
        // A lost lease stays due: with a store that answers at once, this would never be pending again.
        while !lease.is_lost() {
            Box::pin(sleep_until(next)).await;
            next = lease.renewal_at(process);
            // Later than now if the renewal thread has renewed the lease meanwhile.
            if next <= Instant::now() {
                let renewed = claim.clone().renew().await;
                let retry = Instant::now() + lease.pause_after_failure();
                next = if renewed { lease.renewal_at(process) } else { retry };
            }
        }
    };
    select(lost, pin!(renewals)).await;
}

/// Upper limit of the pause after a failed renewal, and between two of a lease that a deadline cuts short.
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
            let at = Lease::new(length, length, sent).renewal_at(&Process::current());
            let after = at - sent.runtime;
            assert!(after <= length / 3 && after > length / 3 - length / 32, "{after:?}");
            moments.insert(at);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(moments.len() <= 12, "ten seconds of calls were renewed at {} moments", moments.len());
    }
}
