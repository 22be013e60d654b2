//! The lease of one attempt: until when it is certainly held, whether it is lost, and how it is renewed. The
//! call's own task renews it, and so does one thread of the process, from outside the call.
//!
//! A call renews its own lease when its body yields the thread. A body that blocks its thread does not yield,
//! and it can block the whole runtime of its caller. So one thread outside that runtime looks at each lease
//! when half of it is over, and renews it if the call's task did not. The renewal runs in the context of the
//! caller's runtime, or in the thread's own runtime if the caller's has ended. The table lists the times of a
//! lease. They are counted from the sending of the last confirmed request, and in the last row from the
//! failure. A lease that a deadline cuts short may be renewed later: see [`Lease::new`].
//!
//! | time | what happens then | by whose clock |
//! |---|---|---|
//! | [`renewal_at`](Lease::renewal_at), a third of its length or a little earlier | the call's task renews it | the runtime's |
//! | [`outside_renewal_at`](Lease::outside_renewal_at), half of its length | the thread renews it, if the task did not | the machine's |
//! | [`is_late`](Lease::is_late), two thirds of its length | a grant that arrives later is renewed before its body starts | the runtime's |
//! | [`held_until`](Lease::held_until), its length, or less near a deadline | until then it is certainly held | the runtime's |
//! | [`pause_after_failure`](Lease::pause_after_failure), up to a second | a renewal that failed is sent again | the clock of that renewal |

use std::future::{pending, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;
use std::thread;
// The machine's clock, which no test pauses; the other `Instant` is the runtime's.
use std::time::{Duration, Instant as MachineInstant};

use futures_util::FutureExt as _;
use futures_util::future::select;
use futures_util::task::AtomicWaker;
use slab::Slab;
use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::engine::Process;
use crate::engine::claim::claimed::AnyClaim;

pub(crate) struct Lease {
    pub(crate) length: Duration,
    /// The call itself renews the lease this long after it sent the last confirmed request.
    renewal_interval: Duration,
    /// The last confirmed request.
    confirmed: Mutex<Sent>,
    lost: AtomicBool,
    doubted: AtomicBool,
    over: AtomicBool,
    waker: AtomicWaker,
    /// Set when code outside the call's task first waits for the end of the lease; most bodies have no such
    /// code.
    outside: OnceLock<Box<Notify>>,
}

/// When a request was sent, and the lease that it asks for. If the request is granted, the lease runs at
/// least that long from the time of sending, however late the answer comes.
#[derive(Clone, Copy)]
pub(crate) struct Sent {
    /// On the runtime's clock, which a test may have paused.
    pub(crate) runtime: Instant,
    /// On the machine's clock, which the renewal from outside uses.
    pub(crate) machine: MachineInstant,
    /// The length of the lease from the time of sending. Near the deadline of `with_deadline`, each further
    /// request asks for a shorter lease.
    pub(crate) lease: Duration,
}

impl Lease {
    /// The lease of a claim that was first sent at `sent`. `uncut` is the lease that the operation sets. Near
    /// a deadline, `length` is shorter.
    pub(crate) fn new(length: Duration, uncut: Duration, sent: Sent) -> Self {
        // Renewals cannot extend a lease that a deadline cuts short. They only find out whether the lease is
        // lost. So the pause between two renewals is at least a second, or a third of the uncut lease if that
        // is shorter.
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

    /// Whether the key is in doubt. If so, an operator may take the claim away at any moment, even within the
    /// lease.
    pub(crate) fn is_doubted(&self) -> bool {
        self.doubted.load(Ordering::Acquire)
    }

    /// Notes that the call has ended, and wakes the code that waits in [`ended`](Self::ended). The lease is
    /// not renewed any more.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.notify_outside();
    }

    fn notify_outside(&self) {
        // Pairs with the memory fence in `ended`: either this code sees the waiter, or the waiter sees the
        // value that was stored before.
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

    /// When the call itself renews the lease: a third of the length after the last confirmed request, or
    /// later near a deadline. This time is rounded down to a multiple of 1/32 of the length. So leases of the
    /// same length are renewed at a few common instants, and the store can take them in batches.
    pub(crate) fn renewal_at(&self, process: &Process) -> Instant {
        let at = later(self.confirmed().runtime, self.renewal_interval);
        let since = at.saturating_duration_since(Instant::from_std(process.epoch));
        let over = since.as_nanos() % (self.length / 32).as_nanos().max(1);
        at.checked_sub(Duration::from_nanos(u64::try_from(over).unwrap_or_default())).unwrap_or(at)
    }

    /// The pause between a failed renewal and the next renewal.
    pub(crate) fn pause_after_failure(&self) -> Duration {
        (self.renewal_interval / 4).min(LONGEST_PAUSE)
    }

    /// When the renewal thread renews the lease, if the call did not.
    pub(crate) fn outside_renewal_at(&self) -> MachineInstant {
        let confirmed = self.confirmed().machine;
        confirmed.checked_add(self.renewal_interval * 3 / 2).unwrap_or_else(|| confirmed + FAR)
    }
}

/// Renews the lease of one attempt in the caller's own task, whenever a renewal is due; ends when the lease
/// is lost. There is no timer before the first poll, which comes when the body is pending.
pub(crate) async fn renewed_until_lost(claim: Arc<dyn AnyClaim>) {
    let (lease, process) = (&claim.held().lease, &claim.call().process);
    let lost = poll_fn(|cx| {
        lease.waker.register(cx.waker());
        if lease.is_lost() { Poll::Ready(()) } else { Poll::Pending }
    });
    let renewals = async {
        let mut next = lease.renewal_at(process);
        // A lost lease stays due. Without this condition, the loop would never be pending again if the store
        // answers at once.
        while !lease.is_lost() {
            Box::pin(sleep_until(next)).await;
            next = lease.renewal_at(process);
            // `next` is later than now if the renewal thread has renewed the lease meanwhile.
            if next <= Instant::now() {
                let renewed = claim.clone().renew().await;
                let retry = Instant::now() + lease.pause_after_failure();
                next = if renewed { lease.renewal_at(process) } else { retry };
            }
        }
    };
    select(lost, pin!(renewals)).await;
}

/// Upper limit of two pauses: the pause after a failed renewal, and the least pause between two renewals of a
/// lease that a deadline cuts short.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A year: a far time for a process, and small enough to be added to an instant.
const FAR: Duration = Duration::from_secs(60 * 60 * 24 * 365);

fn later(instant: Instant, by: Duration) -> Instant {
    instant.checked_add(by).unwrap_or_else(|| instant + FAR)
}

/// The leases that the renewal thread looks at.
#[derive(Default)]
struct Watched {
    /// Each claim, and when to look at its lease; `None` if the lease is over, or if the thread is renewing
    /// it.
    claims: Slab<(Option<MachineInstant>, Arc<dyn AnyClaim>)>,
    /// When the thread looks next; `None` if it waits until it is notified.
    next_look: Option<MachineInstant>,
    running: bool,
}

/// The leases that a process renews from outside their calls.
#[derive(Default)]
pub(crate) struct Renewals {
    watched: Mutex<Watched>,
    earlier: Notify,
}

/// Registers one lease with the thread. Dropping this value removes the lease from the thread and ends its
/// renewal.
pub(crate) struct Watch {
    process: Process,
    key: usize,
}

impl Watch {
    pub(crate) fn over(claim: Arc<dyn AnyClaim>) -> Self {
        let process = claim.call().process.clone();
        let at = claim.held().lease.outside_renewal_at();
        let mut watched = process.renewals.watched();
        if !watched.running {
            watched.running = start(process.clone());
        }
        let key = watched.claims.insert((Some(at), claim));
        process.renewals.look_at(watched, at);
        Self { process, key }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let watched = self.process.renewals.watched().claims.try_remove(self.key);
        if let Some((_, claim)) = watched {
            claim.held().lease.end();
        }
    }
}

impl Renewals {
    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the thread look again at a lease after a renewal, unless the call has ended.
    fn watch_again(&self, key: usize, claim: &Arc<dyn AnyClaim>) {
        let at = claim.held().lease.outside_renewal_at();
        let mut watched = self.watched();
        if let Some((due, known)) = watched.claims.get_mut(key)
            && Arc::ptr_eq(known, claim)
        {
            *due = Some(at);
            self.look_at(watched, at);
        }
    }

    /// Wakes the thread if its next look is later than `at`.
    fn look_at(&self, mut watched: MutexGuard<'_, Watched>, at: MachineInstant) {
        // Compares with the thread's next look and not with the registered leases. Otherwise short calls, one
        // after another, would each wake the thread.
        if watched.next_look.is_none_or(|next| at < next) {
            watched.next_look = Some(at);
            drop(watched);
            self.earlier.notify_one();
        }
    }

    /// The claims whose lease must be renewed now, when the next lease is due, and how long to pause before
    /// the next look.
    fn take_due(&self, now: MachineInstant) -> (Vec<Due>, Option<MachineInstant>, Duration) {
        let mut watched = self.watched();
        let (mut due, mut next) = (Vec::new(), None);
        let mut pause = if watched.claims.len() > MANY { LOOK_PAUSE } else { Duration::ZERO };
        for (key, (at, claim)) in &mut watched.claims {
            let lease = &claim.held().lease;
            pause = pause.min(lease.length / 8);
            if at.is_some_and(|at| at <= now) {
                // If the call has renewed the lease itself, the new time is later than `now`. Otherwise the
                // thread renews the lease.
                *at = Some(lease.outside_renewal_at()).filter(|at| *at > now && !lease.is_over());
                if at.is_none() && !lease.is_over() {
                    due.push((key, claim.clone()));
                }
            }
            next = [next, *at].into_iter().flatten().min();
        }
        watched.next_look = next;
        (due, watched.next_look, pause)
    }
}

/// With more claims than this, the thread pauses between two looks, because each look goes through all
/// claims.
const MANY: usize = 1_000;

/// The pause between two looks. When a lease is due, half of it is left, so a renewal after a pause is not
/// too late. Leases shorter than 80 ms make the pause shorter.
const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// A watched claim with its index.
type Due = (usize, Arc<dyn AnyClaim>);

/// When the thread ends for any reason, this guard lets the next lease start it again.
struct Ending(Process);

impl Drop for Ending {
    fn drop(&mut self) {
        let mut watched = self.0.renewals.watched();
        watched.running = false;
        watched.next_look = None;
    }
}

/// Starts the thread, or the task of a simulated process. Returns whether it runs.
fn start(process: Process) -> bool {
    if process.is_simulated() {
        tokio::spawn(keep(process));
        return true;
    }
    let thread = move || {
        let ending = Ending(process.clone());
        if let Ok(runtime) = Builder::new_current_thread().enable_all().build() {
            runtime.block_on(keep(process));
        }
        drop(ending);
    };
    thread::Builder::new().name("idem-lease".into()).spawn(thread).is_ok()
}

/// Looks at each lease when it is due.
async fn keep(process: Process) {
    let renewals = &process.renewals;
    loop {
        let (due, next, pause) = renewals.take_due((process.clock)());
        due.into_iter().for_each(|(key, claim)| renew(key, claim));
        // If a lease that is due earlier is registered meanwhile, `look_at` notifies this code.
        match next {
            Some(next) => {
                let _ = tokio::time::timeout_at(next.into(), renewals.earlier.notified()).await;
            }
            None => renewals.earlier.notified().await,
        }
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
}

fn renew(key: usize, claim: Arc<dyn AnyClaim>) {
    tokio::spawn(async move {
        let mut request = claim.clone().renew();
        let runtime = &claim.call().runtime;
        let has_ended = has_ended(runtime);
        let renewal = poll_fn(|cx| {
            // An attempt that `Operation::begin` returned can outlive its runtime. If so, the renewal is
            // polled outside that runtime, because the runtime's timers would panic.
            let _entered = (!has_ended).then(|| runtime.enter());
            request.as_mut().poll(cx)
        });
        // If the caller's runtime ends meanwhile, its timers panic. This counts as a failed renewal, and the
        // next renewal runs in this thread's runtime.
        let renewed = AssertUnwindSafe(renewal).catch_unwind().await.unwrap_or(false);
        if !renewed {
            tokio::time::sleep(claim.held().lease.pause_after_failure()).await;
        }
        claim.call().process.renewals.watch_again(key, &claim);
    });
}

/// Whether a runtime was shut down. In such a runtime, tokio drops a spawned task at once.
fn has_ended(runtime: &Handle) -> bool {
    let probe = runtime.spawn(pending::<()>());
    let has_ended = probe.is_finished();
    probe.abort();
    has_ended
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::engine::claim::{Entry, enter};
    use crate::engine::prepare::Call;
    use crate::engine::prepare::operation::{Operation, rendered};
    use crate::store::MemoryStore;

    #[tokio::test(start_paused = true)]
    async fn leases_of_one_length_are_renewed_at_few_moments_and_none_late() {
        let length = Duration::from_secs(30);
        let mut moments = BTreeSet::new();
        for _ in 0..10_000 {
            let sent = Sent { runtime: Instant::now(), machine: MachineInstant::now(), lease: length };
            let at = Lease::new(length, length, sent).renewal_at(&Process::default());
            let after = at - sent.runtime;
            assert!(after <= length / 3 && after > length / 3 - length / 32, "{after:?}");
            moments.insert(at);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(moments.len() <= 12, "ten seconds of calls were renewed at {} moments", moments.len());
    }

    /// A process whose leases nobody renews from outside.
    fn without_thread() -> Process {
        let process = Process::simulated();
        process.renewals.watched().running = true;
        process
    }

    async fn leased(process: &Process, lease: Duration) -> Arc<dyn AnyClaim> {
        let claimed = async {
            let operation = Operation::new("test").lease(lease);
            let call = Call::new(operation, MemoryStore::new(), rendered(&"k")).unwrap();
            enter(&call).await
        };
        match process.scope(claimed).await {
            Ok(Entry::Run(attempt)) => attempt.claimed.clone(),
            _ => panic!("the key is free"),
        }
    }

    async fn watch(process: &Process, seconds: u64) -> Watch {
        Watch::over(leased(process, Duration::from_secs(seconds)).await)
    }

    #[tokio::test]
    async fn the_looks_at_many_leases_have_pauses_that_no_lease_is_too_short_for() {
        let process = without_thread();
        let claim = leased(&process, Duration::from_secs(30)).await;
        let pause = || process.renewals.take_due(MachineInstant::now()).2;
        let mut watches: Vec<_> = (0..MANY).map(|_| Watch::over(claim.clone())).collect();
        assert_eq!(pause(), Duration::ZERO);
        watches.push(Watch::over(claim));
        assert_eq!(pause(), LOOK_PAUSE);
        watches.push(Watch::over(leased(&process, Duration::from_millis(8)).await));
        assert_eq!(pause(), Duration::from_millis(1));
    }

    #[tokio::test]
    async fn the_thread_is_woken_for_a_lease_that_is_due_before_its_next_look_and_for_no_other() {
        let process = without_thread();
        let is_woken = || process.renewals.earlier.notified().now_or_never().is_some();
        drop(watch(&process, 30).await);
        assert!(is_woken(), "nothing was watched");
        let _same = watch(&process, 30).await;
        assert!(!is_woken(), "it looks anyway before that");
        let _earlier = watch(&process, 1).await;
        assert!(is_woken(), "it would look too late");
        process.renewals.watched().claims.clear();
        assert_eq!(process.renewals.take_due(MachineInstant::now()).1, None);
        let _next = watch(&process, 30).await;
        assert!(is_woken(), "it waits for nothing else");
    }

    #[tokio::test]
    async fn a_renewal_that_ends_after_its_call_does_not_change_the_next_lease_in_its_place() {
        let process = without_thread();
        let first = leased(&process, Duration::from_secs(1)).await;
        let key = Watch::over(first.clone()).key;
        let next = watch(&process, 30).await;
        assert_eq!(next.key, key);
        let due = || process.renewals.watched().claims[key].0;
        let before = due();
        process.renewals.watch_again(key, &first);
        assert_eq!(due(), before);
    }
}
