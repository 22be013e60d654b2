//! Work that continues after its caller has gone away or has got its value. [`drain`] waits for such work.
//! A hook gets the results that are given up.
//!
//! Owns the counts of such work in this process, and the limits of its time and of the memory that it takes.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::engine::Process;
use crate::engine::body::context::surroundings;
use crate::engine::report;
use crate::error::{CallId, StoreError};
use idem_core::protocol::{StoredResult, Verdict};

/// How many unrecorded results are kept in memory at a time; further results are given up at once.
const MOST_RESULTS: usize = 1_000;

/// Upper limit of the bytes of all these results together.
const MOST_BYTES: usize = 64 * 1024 * 1024;

/// How long the engine retries to record a result or to release a claim.
pub(crate) const LONGEST: Duration = Duration::from_secs(60 * 60);

/// Upper limit of the releases that wait for their store at a time. Each takes about a kilobyte.
const MOST_RELEASES: usize = 10_000;

/// What a piece of work in the background does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// It runs a detached body, or it is an attempt of `begin`.
    Body,
    /// It records a result.
    Result,
    /// It releases a claim.
    Release,
}

/// The work that a process has in the background: how much there is, and how much more may wait for its
/// store.
pub(crate) struct Background {
    /// How much there is of each kind of [`Work`].
    counts: [AtomicUsize; 3],
    late_results: Arc<Semaphore>,
    late_bytes: Arc<Semaphore>,
    late_releases: Arc<Semaphore>,
    ended: Notify,
}

impl Default for Background {
    fn default() -> Self {
        Self {
            counts: Default::default(),
            late_results: Arc::new(Semaphore::new(MOST_RESULTS)),
            late_bytes: Arc::new(Semaphore::new(MOST_BYTES)),
            late_releases: Arc::new(Semaphore::new(MOST_RELEASES)),
            ended: Notify::new(),
        }
    }
}

impl Background {
    /// A share of [`MOST_RELEASES`]; `None` if the limit is reached.
    pub(crate) fn room_for_release(&self) -> Option<OwnedSemaphorePermit> {
        self.late_releases.clone().try_acquire_owned().ok()
    }

    fn left(&self) -> Drained {
        let [bodies, results, releases] = [Work::Body, Work::Result, Work::Release]
            .map(|work| self.counts[work as usize].load(Ordering::SeqCst));
        Drained { bodies, results, releases }
    }
}

/// One piece of work that [`drain`] waits for. The work counts as over when this value is dropped, even if
/// the runtime drops it.
pub(crate) struct Pending {
    process: Process,
    work: Work,
}

impl Pending {
    pub(crate) fn new(process: &Process, work: Work) -> Self {
        process.background.counts[work as usize].fetch_add(1, Ordering::SeqCst);
        Self { process: process.clone(), work }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let background = &self.process.background;
        if background.counts[self.work as usize].fetch_sub(1, Ordering::SeqCst) == 1 {
            background.ended.notify_waiters();
        }
    }
}

/// A share of the limits for results that wait for their store.
pub(crate) struct LateRoom {
    bytes: usize,
    _shares: [OwnedSemaphorePermit; 2],
    _pending: Pending,
}

impl LateRoom {
    /// Takes a share of this many bytes; `None` if a limit is reached.
    pub(crate) fn take(process: &Process, bytes: usize) -> Option<Self> {
        let background = &process.background;
        let share = u32::try_from(bytes).ok()?;
        let result = background.late_results.clone().try_acquire_owned().ok()?;
        let size = background.late_bytes.clone().try_acquire_many_owned(share).ok()?;
        report::late_results(1.0, bytes);
        Some(Self { bytes, _shares: [result, size], _pending: Pending::new(process, Work::Result) })
    }
}

impl Drop for LateRoom {
    fn drop(&mut self) {
        report::late_results(-1.0, self.bytes);
    }
}

/// The work that was left when [`drain`] returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// Detached bodies that are still running, and attempts of [`Operation::begin`](crate::Operation::begin)
    /// that have not ended.
    pub bodies: usize,
    /// Results that are not recorded yet. Other calls can take over their keys after the leases have ended.
    pub results: usize,
    /// Claims that are not released yet. When their leases have ended, other calls treat them as crashes.
    pub releases: usize,
}

impl Drained {
    /// Whether all the work has ended.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.bodies == 0 && self.results == 0 && self.releases == 0
    }
}

/// Waits at most `patience` until the calls of this process have no work left in the background, and returns
/// how much work is left then.
///
/// Such work is a detached body, an attempt of [`Operation::begin`](crate::Operation::begin), the recording
/// of a result whose caller went away or has the value already, or the release of a claim for which no caller
/// waits. Call `drain` at the end of a program, after the last call and before its runtime is dropped. The
/// runtime drops the work that has not ended.
///
/// `drain` does not wait for calls that their callers still await, and does not prevent new calls.
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
    let process = surroundings().process;
    let background = &process.background;
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
/// Unless this thread is panicking, polls the work once immediately. So a store that only queues requests has
/// the request before the caller's runtime can end. The rest of the work becomes a task.
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
        // If the runtime was shut down, a timer panics here. By then the store has the request, and a result
        // that is dropped here is reported.
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut cx))) {
            Ok(Poll::Pending) => {}
            Ok(Poll::Ready(())) | Err(_) => return None,
        }
    }
    Some(runtime.spawn(work))
}

/// A result that the engine does not try to record any more: the argument of the hook of
/// [`LateRecording::on_unrecorded`]. If the outcome of a try is unknown, the store may have recorded the
/// result.
///
/// `Debug` shows only the length of the result.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Unrecorded {
    /// Which call: the scope of the operation, and the digest of its key.
    pub call: CallId,
    /// Which attempt made the result.
    pub attempt: u32,
    /// Whether the result is a value or a terminal error.
    pub verdict: Verdict,
    /// The result as it would be in the store: JSON, or a response of the HTTP layer. Private data.
    pub result: StoredResult,
    /// How long the store would have kept the result.
    pub ttl: Duration,
    /// The last error of the store; `None` if the key was taken over, released or deleted meanwhile.
    pub error: Option<StoreError>,
}

type Hook = Arc<dyn Fn(&Unrecorded) + Send + Sync>;

/// Settings of this process for results that the store did not record in time. The engine retries recording
/// such results in the background.
///
/// A caller gets the value of a body that succeeded, whatever the store does. But as long as the result is
/// not recorded, another caller can run the body once the lease is over. So the engine keeps the result in
/// memory and retries for an hour, with pauses that grow to a few seconds. It keeps at most 1,000 results,
/// and at most 64 MiB of them. See "When the store fails after the work" in `docs/attribute.md`.
///
/// ```
/// # use idem_runtime as idem;
/// use idem::LateRecording;
///
/// LateRecording::new()
///     .on_unrecorded(|lost| {
///         // Put it where an operator finds it: a file, a queue, another database.
///         eprintln!("not recorded: {} attempt {}", lost.call, lost.attempt);
///     })
///     .install();
/// ```
#[derive(Clone, Default)]
#[must_use = "the settings are those of the process once they are `install`ed"]
pub struct LateRecording {
    hook: Option<Hook>,
}

impl LateRecording {
    /// The default settings, without a hook.
    pub const fn new() -> Self {
        Self { hook: None }
    }

    /// Calls `hook` with each result that the engine gives up, for one of these reasons:
    ///
    /// * A limit of [`LateRecording`] is reached.
    /// * The store returned an error that a retry cannot help.
    /// * The key was taken over, released or deleted.
    /// * The runtime was shut down.
    ///
    /// The hook runs in the task of the call, in a task in the background, or while the runtime drops its
    /// tasks. It must not block for long, so send the result to a queue or a thread. A panic of the hook is
    /// caught. The event `unrecorded` is emitted first.
    pub fn on_unrecorded(mut self, hook: impl Fn(&Unrecorded) + Send + Sync + 'static) -> Self {
        self.hook = Some(Arc::new(hook));
        self
    }

    /// Makes these the settings of this process, even for results that are already waiting.
    pub fn install(self) {
        let process = surroundings().process;
        *process.late_recording.write().unwrap_or_else(PoisonError::into_inner) = self;
    }

    pub(crate) fn tell(&self, unrecorded: impl FnOnce() -> Unrecorded) {
        if let Some(hook) = &self.hook {
            // A panic of the hook must not reach the call.
            let _ = catch_unwind(AssertUnwindSafe(|| hook(&unrecorded())));
        }
    }
}

impl fmt::Debug for LateRecording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LateRecording").field("on_unrecorded", &self.hook.is_some()).finish()
    }
}
