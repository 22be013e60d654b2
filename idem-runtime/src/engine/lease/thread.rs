//! Renewal from outside: one thread of this process renews the leases of calls whose task cannot do it.
//!
//! A call renews its own lease when its body yields the thread. A body that blocks its thread does not yield, and then
//! nothing else in the caller's runtime may be able to run. So one thread outside that runtime looks at each lease when
//! half of it is over, and renews it if nobody else has: in the caller's runtime, or in that of the thread if the caller's
//! has ended.

use std::future::{pending, poll_fn};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use slab::Slab;
use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;

use crate::engine::claim::claimed::AnyClaim;
use crate::engine::process::Process;

#[derive(Default)]
struct Watched {
    /// Each claim, and when to look at its lease; `None` if it is over, or a renewal from here is under way.
    claims: Slab<(Option<Instant>, Arc<dyn AnyClaim>)>,
    /// When the thread looks next; `None` if it waits until it is notified.
    next_look: Option<Instant>,
    running: bool,
}

/// The leases of a process that are renewed from outside their calls.
#[derive(Default)]
pub(crate) struct Renewals {
    watched: Mutex<Watched>,
    earlier: Notify,
}

/// Registers one lease with the thread until it is dropped.
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

    /// Looks again at a lease whose renewal has ended, if its call has not.
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
    fn look_at(&self, mut watched: MutexGuard<'_, Watched>, at: Instant) {
        // Compares with the thread's next look and not with the registered leases. Otherwise a series of short calls,
        // each the only one registered, would wake the thread each time.
        if watched.next_look.is_none_or(|next| at < next) {
            watched.next_look = Some(at);
            drop(watched);
            self.earlier.notify_one();
        }
    }

    /// The claims whose lease must be renewed now, when to look again, and how much later that may be.
    fn take_due(&self, now: Instant) -> (Vec<Due>, Option<Instant>, Duration) {
        let mut watched = self.watched();
        let (mut due, mut next) = (Vec::new(), None);
        let mut pause = if watched.claims.len() > MANY { LOOK_PAUSE } else { Duration::ZERO };
        for (key, (at, claim)) in &mut watched.claims {
            let lease = &claim.held().lease;
            pause = pause.min(lease.length / 8);
            if at.is_some_and(|at| at <= now) {
                // Later than `now` if the call has renewed its lease itself.
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

/// With more claims than this, the looks have pauses, because each look goes through all claims.
const MANY: usize = 1_000;

/// The pause between two looks. Half of a lease is left when it is due, so a renewal after a pause is not
/// too late. Leases shorter than 80 ms make the pause shorter.
const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// A claim, and its place among those watched.
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
        let (due, next, pause) = renewals.take_due(process.clock());
        due.into_iter().for_each(|(key, claim)| renew(key, claim));
        // A lease that is registered meanwhile may be due earlier; then `look_at` has notified this code.
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
            // The timers of a runtime that has ended panic. The attempts of `begin` outlive theirs.
            let _entered = (!has_ended).then(|| runtime.enter());
            request.as_mut().poll(cx)
        });
        // Also if it ends meanwhile: then the next look is in this runtime.
        let renewed = AssertUnwindSafe(renewal).catch_unwind().await.unwrap_or(false);
        if !renewed {
            tokio::time::sleep(claim.held().lease.pause_after_failure()).await;
        }
        claim.call().process.renewals.watch_again(key, &claim);
    });
}

/// Whether a runtime was shut down. Tokio drops a task that is spawned there at once.
fn has_ended(runtime: &Handle) -> bool {
    let probe = runtime.spawn(pending::<()>());
    let has_ended = probe.is_finished();
    probe.abort();
    has_ended
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::claim::{Entry, enter};
    use crate::engine::prepare::call::Call;
    use crate::engine::prepare::operation::{Operation, rendered};
    use crate::store::MemoryStore;

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
        let pause = || process.renewals.take_due(Instant::now()).2;
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
        assert_eq!(process.renewals.take_due(Instant::now()).1, None);
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
