//! The keeper: one thread of this process that renews the leases of calls whose task cannot.
//!
//! A call renews its own lease whenever its body lets go of the thread. A body that blocks its
//! thread does not, and nothing in the caller's runtime may be able to run; so one thread outside
//! it looks at each lease when half of it is over, and renews what nobody has renewed.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;

use super::lease::Lease;

/// A lease that can be renewed from outside its call.
pub(super) trait Kept: Send + Sync + 'static {
    fn lease(&self) -> &Lease;
    /// The runtime of the call, whose clock and reactor the store's future needs.
    fn runtime(&self) -> &Handle;
    fn renew_from_outside(self: Arc<Self>) -> Pin<Box<dyn Future<Output = bool> + Send>>;
}

/// When a lease is looked at, and a number that tells two of that moment apart.
type Due = (Instant, u64);

#[derive(Default)]
struct Watched {
    /// Not held by the keeper: a call that has ended is gone.
    leases: BTreeMap<Due, Weak<dyn Kept>>,
    next_number: u64,
    running: bool,
}

struct Keeper {
    watched: Mutex<Watched>,
    earlier: Notify,
}

static KEEPER: LazyLock<Keeper> =
    LazyLock::new(|| Keeper { watched: Mutex::default(), earlier: Notify::new() });

/// The keeper's eye on one lease; it looks away when this is dropped.
pub(super) struct Watch {
    lease: Arc<dyn Kept>,
    due: Due,
}

impl Watch {
    pub(super) fn over(lease: Arc<dyn Kept>) -> Self {
        let due = KEEPER.watch(&lease);
        Self { lease, due }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.lease.lease().end();
        // Where the keeper has moved it on meanwhile, it finds it over at the next look.
        KEEPER.watched().leases.remove(&self.due);
    }
}

impl Keeper {
    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self, lease: &Arc<dyn Kept>) -> Due {
        let at = lease.lease().keep_at();
        let mut watched = self.watched();
        if !watched.running {
            watched.running = thread::Builder::new().name("idem-lease".into()).spawn(keep).is_ok();
        }
        let due = (at, watched.next_number);
        watched.next_number = watched.next_number.wrapping_add(1);
        let first = watched.leases.first_key_value().is_none_or(|(first, _)| due < *first);
        watched.leases.insert(due, Arc::downgrade(lease));
        drop(watched);
        if first {
            self.earlier.notify_one();
        }
        due
    }

    /// The leases to look at now, and when to look again.
    fn take_due(&self) -> (Vec<Weak<dyn Kept>>, Option<Instant>) {
        let mut watched = self.watched();
        let now = (Instant::now(), u64::MAX);
        let later = watched.leases.split_off(&now);
        let due = std::mem::replace(&mut watched.leases, later);
        (due.into_values().collect(), watched.leases.first_key_value().map(|(due, _)| due.0))
    }
}

/// Lets the next lease start the thread again, however it ended.
struct Ending;

impl Drop for Ending {
    fn drop(&mut self) {
        KEEPER.watched().running = false;
    }
}

/// The thread.
fn keep() {
    let _ending = Ending;
    let Ok(runtime) = Builder::new_current_thread().enable_time().build() else {
        return;
    };
    runtime.block_on(async {
        loop {
            let (due, next) = KEEPER.take_due();
            for lease in due.iter().filter_map(Weak::upgrade) {
                look_at(lease);
            }
            // What was just put back may be due earlier; `watch` has rung for it then.
            match next {
                Some(next) => {
                    let _ = tokio::time::timeout_at(next.into(), KEEPER.earlier.notified()).await;
                }
                None => KEEPER.earlier.notified().await,
            }
        }
    });
}

fn look_at(lease: Arc<dyn Kept>) {
    if lease.lease().is_over() {
        return;
    }
    if lease.lease().keep_at() > Instant::now() {
        KEEPER.watch(&lease);
        return;
    }
    tokio::spawn(async move {
        let mut renewal = lease.clone().renew_from_outside();
        let runtime = lease.runtime().clone();
        let renewed = poll_fn(|cx| {
            let _entered = runtime.enter();
            renewal.as_mut().poll(cx)
        })
        .await;
        if !renewed {
            tokio::time::sleep((lease.lease().length / 12).min(Duration::from_secs(1))).await;
        }
        if !lease.lease().is_over() {
            KEEPER.watch(&lease);
        }
    });
}
