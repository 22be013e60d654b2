//! Work that continues after its caller has gone away or has its value, and [`drain`], which waits for it.
//!
//! Owns the counts of such work in this process, and the limits of the memory that it takes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::engine::process::Process;
use crate::engine::record::late_recording::{MOST_BYTES, MOST_RESULTS};
use crate::engine::report;

/// Upper limit of the releases that wait for their store at a time. Each takes about a kilobyte.
const MOST_RELEASES: usize = 10_000;

/// What a piece of work in the background does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// It runs a detached body.
    Body,
    /// It records a result.
    Result,
    /// It releases a claim.
    Release,
}

/// Counts of the work that a process has in the background.
#[derive(Default)]
pub(crate) struct Background {
    bodies: AtomicUsize,
    results: AtomicUsize,
    releases: AtomicUsize,
    late_results: AtomicUsize,
    late_bytes: AtomicUsize,
    late_releases: AtomicUsize,
    ended: Notify,
}

impl Background {
    const fn count(&self, work: Work) -> &AtomicUsize {
        match work {
            Work::Body => &self.bodies,
            Work::Result => &self.results,
            Work::Release => &self.releases,
        }
    }

    fn left(&self) -> Drained {
        Drained {
            bodies: self.bodies.load(Ordering::SeqCst),
            results: self.results.load(Ordering::SeqCst),
            releases: self.releases.load(Ordering::SeqCst),
        }
    }
}

/// One piece of work that [`drain`] waits for. The work counts as over when this is dropped, also if its runtime drops
/// it.
pub(crate) struct Pending {
    process: Process,
    work: Work,
}

impl Pending {
    pub(crate) fn new(process: &Process, work: Work) -> Self {
        process.background().count(work).fetch_add(1, Ordering::SeqCst);
        Self { process: process.clone(), work }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let background = self.process.background();
        if background.count(self.work).fetch_sub(1, Ordering::SeqCst) == 1 {
            background.ended.notify_waiters();
        }
    }
}

/// A share of the limits for results that wait for their store.
pub(crate) struct LateRoom {
    bytes: usize,
    pending: Pending,
}

impl LateRoom {
    /// Takes a share of this many bytes; `None` if a limit is reached.
    pub(crate) fn take(process: &Process, bytes: usize) -> Option<Self> {
        // Made before the counts rise, because dropping it lowers them again.
        let room = Self { bytes, pending: Pending::new(process, Work::Result) };
        let results = process.background().late_results.fetch_add(1, Ordering::SeqCst);
        let before = process.background().late_bytes.fetch_add(bytes, Ordering::SeqCst);
        report::late_results(1.0, bytes);
        (results < MOST_RESULTS && before.saturating_add(bytes) <= MOST_BYTES).then_some(room)
    }
}

impl Drop for LateRoom {
    fn drop(&mut self) {
        let background = self.pending.process.background();
        background.late_results.fetch_sub(1, Ordering::SeqCst);
        background.late_bytes.fetch_sub(self.bytes, Ordering::SeqCst);
        report::late_results(-1.0, self.bytes);
    }
}

/// A share of [`MOST_RELEASES`].
pub(crate) struct ReleaseRoom(Process);

impl ReleaseRoom {
    /// Takes a share; `None` if the limit is reached.
    pub(crate) fn take(process: &Process) -> Option<Self> {
        let room = Self(process.clone());
        (process.background().late_releases.fetch_add(1, Ordering::SeqCst) < MOST_RELEASES).then_some(room)
    }
}

impl Drop for ReleaseRoom {
    fn drop(&mut self) {
        self.0.background().late_releases.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What [`drain`] could not wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// Detached bodies that are still running, and attempts of [`Operation::begin`](crate::Operation::begin) that have not
    /// ended.
    pub bodies: usize,
    /// Results that are not recorded yet. Other calls can take over their keys after the leases have ended.
    pub results: usize,
    /// Claims that are not released yet. When their leases have ended, other calls take them for crashes.
    pub releases: usize,
}

impl Drained {
    /// Whether nothing is left.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.bodies == 0 && self.results == 0 && self.releases == 0
    }
}

/// Waits at most `patience` until the calls of this process have no work left in the background, and returns what is
/// left then.
///
/// Background work is: detached bodies, attempts of [`Operation::begin`](crate::Operation::begin), recording of results whose caller went away or has its value already, and
/// release of claims that the caller did not wait for. Call `drain` at the end of a program, after the last call and
/// before its runtime is dropped: a runtime that is dropped earlier drops this work.
///
/// It does not wait for calls that are still awaited, and does not prevent new calls.
///
/// # Cancellation
///
/// Dropping the future changes nothing: the work continues.
///
/// ```
/// # use idem_runtime as idem;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), idem::Error> {
/// use std::time::Duration;
/// use idem::{MemoryStore, Operation};
///
/// Operation::new("payments.charge").run(&MemoryStore::new(), "order-42", || async { Ok::<_, idem::Error>(7) }).await?;
///
/// let left = idem::drain(Duration::from_secs(30)).await;
/// if !left.is_complete() {
///     eprintln!("{} results are not recorded", left.results);
/// }
/// # Ok(())
/// # }
/// ```
pub async fn drain(patience: Duration) -> Drained {
    let process = Process::current();
    let background = process.background();
    let over = async {
        loop {
            let mut ended = pin!(background.ended.notified());
            ended.as_mut().enable();
            if background.left().is_complete() {
                return;
            }
            ended.await;
        }
    };
    // The return value says what is left, so the timeout itself is not an error.
    let _ = timeout(patience, over).await;
    background.left()
}

/// Finishes `work` without a caller.
///
/// The work is polled once at once, so that a store that only queues the request has it before the caller's runtime can
/// end. The rest of the work becomes a task.
pub(crate) fn finish(
    process: &Process,
    runtime: &Handle,
    kind: Work,
    work: impl Future<Output = ()> + Send + 'static,
) -> Option<JoinHandle<()>> {
    let pending = Pending::new(process, kind);
    let mut work: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
        let _pending = pending;
        work.await;
    });
    if !std::thread::panicking() {
        let _entered = runtime.enter();
        let mut cx = Context::from_waker(Waker::noop());
        // A timer panics if the runtime was shut down. By then the store has the request. A result that is dropped here
        // is reported.
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut cx))) {
            Ok(Poll::Pending) => {}
            Ok(Poll::Ready(())) | Err(_) => return None,
        }
    }
    Some(runtime.spawn(work))
}
