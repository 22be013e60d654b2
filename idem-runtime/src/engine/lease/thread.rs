//! Renewal from outside: one thread of this process renews the leases of calls whose task cannot do it.
//!
//! A call renews its own lease when its body yields the thread. A body that blocks its thread does not yield, and then
//! nothing else in the caller's runtime may be able to run. So one thread outside that runtime looks at each lease when
//! half of it is over, and renews it if nobody else has: in the caller's runtime, or in that of the thread if the caller's
//! has ended.

use std::collections::BTreeMap;
use std::future::{pending, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Instant;

use futures_util::FutureExt as _;
use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;

use crate::engine::lease::Lease;
use crate::engine::process::Process;

/// A lease that can be renewed from outside its call.
pub(crate) trait RenewableLease: Send + Sync + 'static {
    fn lease(&self) -> &Lease;
    /// The runtime of the call, whose clock and reactor the store's future needs.
    fn runtime(&self) -> &Handle;
    fn process(&self) -> &Process;
    fn renew_from_outside(self: Arc<Self>) -> Pin<Box<dyn Future<Output = bool> + Send>>;
}

/// When to look at a lease, and a number that distinguishes two leases of the same instant.
type Due = (Instant, u64);

#[derive(Default)]
struct Watched {
    /// Weak references, because a call that has ended needs no renewal.
    leases: BTreeMap<Due, Weak<dyn RenewableLease>>,
    next_number: u64,
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
    lease: Arc<dyn RenewableLease>,
    due: Due,
}

impl Watch {
    pub(crate) fn over(lease: Arc<dyn RenewableLease>) -> Self {
        let due = lease.process().renewals().watch(&lease);
        Self { lease, due }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.lease.lease().end();
        // If the thread has registered the lease again under another instant, it finds at the next look that the lease
        // is over.
        self.lease.process().renewals().watched().leases.remove(&self.due);
    }
}

impl Renewals {
    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self, lease: &Arc<dyn RenewableLease>) -> Due {
        let at = lease.lease().outside_renewal_at();
        let mut watched = self.watched();
        if !watched.running {
            watched.running = start(lease.process().clone());
        }
        let due = (at, watched.next_number);
        watched.next_number = watched.next_number.wrapping_add(1);
        watched.leases.insert(due, Arc::downgrade(lease));
        // Compares with the thread's next look and not with the registered leases. Otherwise a series of short calls,
        // each the only one registered, would wake the thread each time.
        let earlier = watched.next_look.is_none_or(|next| at < next);
        if earlier {
            watched.next_look = Some(at);
        }
        drop(watched);
        if earlier {
            self.earlier.notify_one();
        }
        due
    }

    /// The leases to look at now, and when to look again.
    fn take_due(&self, now: Instant) -> (Vec<Weak<dyn RenewableLease>>, Option<Instant>) {
        let mut watched = self.watched();
        let now = (now, u64::MAX);
        let later = watched.leases.split_off(&now);
        let due = std::mem::replace(&mut watched.leases, later);
        watched.next_look = watched.leases.first_key_value().map(|(due, _)| due.0);
        (due.into_values().collect(), watched.next_look)
    }
}

/// When the thread ends for any reason, this guard lets the next lease start it again.
struct Ending(Process);

impl Drop for Ending {
    fn drop(&mut self) {
        let mut watched = self.0.renewals().watched();
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
    let renewals = process.renewals();
    loop {
        let (due, next) = renewals.take_due(process.clock());
        for lease in due.iter().filter_map(Weak::upgrade) {
            look_at(lease);
        }
        // A lease that was just registered again may be due earlier; then `watch` has notified this code.
        match next {
            Some(next) => {
                let _ = tokio::time::timeout_at(next.into(), renewals.earlier.notified()).await;
            }
            None => renewals.earlier.notified().await,
        }
    }
}

fn look_at(lease: Arc<dyn RenewableLease>) {
    if lease.lease().is_over() {
        return;
    }
    if lease.lease().outside_renewal_at() > lease.process().clock() {
        lease.process().renewals().watch(&lease);
        return;
    }
    tokio::spawn(async move {
        let mut request = lease.clone().renew_from_outside();
        let runtime = lease.runtime().clone();
        let has_ended = has_ended(&runtime);
        let renewal = poll_fn(|cx| {
            // The timers of a runtime that has ended panic. The attempts of `begin` outlive theirs.
            let _entered = (!has_ended).then(|| runtime.enter());
            request.as_mut().poll(cx)
        });
        // Also if it ends meanwhile: then the next look is in this runtime.
        let renewed = AssertUnwindSafe(renewal).catch_unwind().await.unwrap_or(false);
        if !renewed {
            tokio::time::sleep(lease.lease().pause_after_failure()).await;
        }
        if !lease.lease().is_over() {
            lease.process().renewals().watch(&lease);
        }
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
    use std::time::Duration;

    use super::*;
    use crate::engine::lease::Sent;

    struct Call(Lease, Handle, Process);

    impl RenewableLease for Call {
        fn lease(&self) -> &Lease {
            &self.0
        }

        fn runtime(&self) -> &Handle {
            &self.1
        }

        fn process(&self) -> &Process {
            &self.2
        }

        fn renew_from_outside(self: Arc<Self>) -> Pin<Box<dyn Future<Output = bool> + Send>> {
            Box::pin(std::future::ready(true))
        }
    }

    #[tokio::test]
    async fn the_thread_is_woken_for_a_lease_that_is_due_before_its_next_look_and_for_no_other() {
        let watched = Watched { running: true, ..Watched::default() };
        let thread = Renewals { watched: Mutex::new(watched), earlier: Notify::new() };
        let call = |seconds| -> Arc<dyn RenewableLease> {
            let length = Duration::from_secs(seconds);
            let process = Process::current();
            Arc::new(Call(
                Lease::new(length, Sent::now(&process, length), Duration::ZERO),
                Handle::current(),
                process,
            ))
        };
        let woken_for = |lease: &Arc<dyn RenewableLease>| {
            let due = thread.watch(lease);
            (due, thread.earlier.notified().now_or_never().is_some())
        };
        let (due, woken) = woken_for(&call(30));
        assert!(woken, "nothing was watched");
        thread.watched().leases.remove(&due);
        assert!(!woken_for(&call(30)).1, "it looks anyway before that");
        assert!(woken_for(&call(1)).1, "it would look too late");
        thread.watched().leases.clear();
        assert_eq!(thread.take_due(Instant::now()).1, None);
        assert!(woken_for(&call(30)).1, "it waits for nothing else");
    }
}
