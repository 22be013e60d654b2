//! What a running body can learn of its call, and what a caller can learn of a call it made.
//!
//! Owns the two task-locals. The engine sets them; nothing here decides anything.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::engine::Recorder;
use crate::error::Error;
use crate::key::{Key, RecordKey, framed_digest};
use crate::protocol::{Fence, Grant, Replay};

tokio::task_local! {
    static CURRENT: Current;
    static OBSERVER: Option<Arc<Observation>>;
    static DEADLINE: Instant;
}

/// What a running body can learn of its call: see [`context`].
#[derive(Clone)]
pub struct Context(Arc<dyn Details>);

/// Where a context's answers come from.
pub(crate) trait Details: Send + Sync {
    /// The key of the call.
    fn key(&self) -> &RecordKey;
    /// What was granted; `None` where the call runs unprotected.
    fn grant(&self) -> Option<Grant>;
}

struct Plain {
    key: RecordKey,
    grant: Option<Grant>,
}

impl Details for Plain {
    fn key(&self) -> &RecordKey {
        &self.key
    }

    fn grant(&self) -> Option<Grant> {
        self.grant
    }
}

/// The call whose body this runs in, or `None` outside one.
///
/// It is bound to the task: a body that spawns another hands it over itself.
///
/// ```
/// # use idem_runtime as idem;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), idem::Error> {
/// use idem::{MemoryStore, Operation};
///
/// let store = MemoryStore::new();
/// let attempt = Operation::new("payments.charge")
///     .run(&store, "order-42", || async {
///         let context = idem::context().expect("a body has a context");
///         let gateway_key = context.downstream_key("gateway");
///         assert_eq!(gateway_key.len(), 32);
///         Ok::<_, idem::Error>(context.attempt())
///     })
///     .await?;
/// assert_eq!(attempt, 1);
/// assert!(idem::context().is_none());
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn context() -> Option<Context> {
    CURRENT.try_with(|current| current.context.clone()).ok()
}

/// The call whose body this runs in, as the engine sees it.
#[derive(Clone)]
pub(crate) struct Current {
    pub(crate) context: Context,
    /// What records its steps; `None` where nothing guards the body, or a transaction of the caller's.
    pub(crate) recorder: Option<Arc<dyn Recorder>>,
    /// Whether this is inside a step, or where no step may be.
    pub(crate) within_step: bool,
}

impl Current {
    pub(crate) fn new(context: Context, recorder: Option<Arc<dyn Recorder>>) -> Self {
        Self { context, recorder, within_step: false }
    }

    pub(crate) fn get() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    /// Runs `poll` with this as the call of the task, hidden from any observer of an outer call.
    pub(crate) fn enter<T>(&self, poll: impl FnOnce() -> T) -> T {
        OBSERVER.sync_scope(None, || CURRENT.sync_scope(self.clone(), poll))
    }

    /// Runs what is inside a step of this call.
    pub(crate) async fn within_step<F: Future>(&self, inside: F) -> F::Output {
        CURRENT.scope(Self { within_step: true, ..self.clone() }, inside).await
    }
}

impl Context {
    pub(crate) fn new(key: RecordKey, grant: Option<Grant>) -> Self {
        Self::of(Arc::new(Plain { key, grant }))
    }

    pub(crate) fn of(details: Arc<dyn Details>) -> Self {
        Self(details)
    }

    /// The scope of the operation.
    #[must_use]
    pub fn operation(&self) -> &str {
        self.0.key().scope().as_str()
    }

    /// The key of the call, as it was rendered. It is private data.
    #[must_use]
    pub fn key(&self) -> &Key {
        self.0.key().key()
    }

    /// Which attempt this is; from 1. It is 1 also where the call runs unprotected.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.0.grant().map_or(1, |grant| grant.attempt)
    }

    /// The fence of this attempt, for a downstream that can refuse a lower one. `None` where the
    /// call runs unprotected, because the store was down and the operation fails open.
    #[must_use]
    pub fn fence(&self) -> Option<Fence> {
        self.0.grant().map(|grant| grant.fence)
    }

    /// Whether this attempt took over from one whose lease ran out, so that the effect may have
    /// happened already.
    #[must_use]
    pub fn recovered(&self) -> bool {
        self.0.grant().is_some_and(|grant| grant.recovered)
    }

    /// Whether the call is protected by a claim; `false` only where the store was down and the
    /// operation fails open.
    #[must_use]
    pub fn protected(&self) -> bool {
        self.0.grant().is_some()
    }

    /// A key for the next service: the same at every attempt of this call, different for every
    /// other key, operation or `name`, and telling nothing of the key. 32 hexadecimal characters
    /// (128 bits of a SHA-256).
    #[must_use]
    pub fn downstream_key(&self, name: &str) -> String {
        let digest = framed_digest(&["idem downstream key", self.operation(), self.key().as_str(), name]);
        digest[..16].iter().fold(String::with_capacity(32), |mut text, byte| {
            use fmt::Write as _;
            // Writing to a `String` cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("key", self.0.key()).field("grant", &self.0.grant()).finish()
    }
}

/// How an idempotent call got its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Its body ran.
    #[non_exhaustive]
    Executed {
        /// Which attempt it was; from 1.
        attempt: u32,
        /// Whether it took over from an attempt whose lease ran out.
        recovered: bool,
    },
    /// It was given the result recorded by another call.
    #[non_exhaustive]
    Replayed {
        /// The attempt that made the result.
        attempt: u32,
        /// When it was recorded, by the store's clock.
        completed_at: SystemTime,
    },
    /// Its body ran and succeeded, but its result could not be recorded: the store failed for
    /// longer than the lease, or the record was deleted. Another caller may run the body again.
    #[non_exhaustive]
    Unrecorded {
        /// Which attempt it was; from 1.
        attempt: u32,
    },
    /// Its body ran without protection: the store was down and the operation fails open, or the call
    /// had no key and `missing_key = "run"`.
    Unprotected,
}

impl Outcome {
    /// Whether the result was recorded by another call.
    #[must_use]
    pub const fn is_replayed(&self) -> bool {
        matches!(self, Self::Replayed { .. })
    }

    /// The attempt that made the value; `None` where the body ran without a claim.
    #[must_use]
    pub const fn attempt(&self) -> Option<u32> {
        match self {
            Self::Executed { attempt, .. }
            | Self::Replayed { attempt, .. }
            | Self::Unrecorded { attempt } => Some(*attempt),
            Self::Unprotected => None,
        }
    }

    pub(crate) fn replayed(replay: &Replay) -> Self {
        let since_epoch = Duration::from_micros(replay.completed_at.as_micros());
        Self::Replayed {
            attempt: replay.attempt,
            completed_at: UNIX_EPOCH.checked_add(since_epoch).unwrap_or(UNIX_EPOCH),
        }
    }
}

/// What [`observe`] gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Observed<T> {
    /// What the call gave.
    pub value: T,
    /// How it got it; `None` if it was refused (in flight, mismatch, ...) or makes no idempotent
    /// call. Where it makes several, the last one's.
    pub outcome: Option<Outcome>,
}

/// How a call ended that gave no value.
#[cfg_attr(not(feature = "message"), allow(dead_code, reason = "`message` reads it"))]
#[derive(Clone, Debug)]
pub(crate) enum Ending {
    /// It was refused, or its result is not to be had.
    Refused(Error),
    /// Its body failed in a way worth retrying.
    Released {
        /// Which attempt it was.
        attempt: u32,
    },
    /// Its body failed for good, now or when the result was recorded.
    Terminal,
}

/// Where it is put down what becomes of the calls of a task.
#[derive(Default)]
pub(crate) struct Observation {
    /// Who observes the observer's call sees as much.
    outer: Option<Arc<Self>>,
    outcome: Mutex<Option<Outcome>>,
    ending: Mutex<Option<Ending>>,
    horizon: Option<Duration>,
    forgetful: Mutex<Vec<(String, Duration)>>,
    behind: Mutex<Vec<JoinHandle<()>>>,
}

impl Observation {
    /// The observer of the calls of this task, if there is one.
    pub(crate) fn current() -> Option<Arc<Self>> {
        OBSERVER.try_with(Clone::clone).ok().flatten()
    }

    /// An observer within the current one, if there is one.
    pub(crate) fn within_current() -> Self {
        Self { outer: Self::current(), ..Self::default() }
    }

    /// The same, that also puts down the operations whose results are not kept for as long as `horizon`.
    #[cfg(feature = "message")]
    pub(crate) fn with_horizon(horizon: Option<Duration>) -> Self {
        Self { horizon, ..Self::within_current() }
    }

    pub(crate) fn set(&self, outcome: Outcome) {
        *guard(&self.outcome) = Some(outcome);
        self.outer.iter().for_each(|outer| outer.set(outcome));
    }

    pub(crate) fn end(&self, ending: Ending) {
        self.outer.iter().for_each(|outer| outer.end(ending.clone()));
        *guard(&self.ending) = Some(ending);
    }

    /// An operation keeps its results for so long.
    pub(crate) fn keeps_for(&self, operation: &str, ttl: Duration) {
        if self.horizon.is_some_and(|horizon| ttl < horizon) {
            guard(&self.forgetful).push((operation.to_owned(), ttl));
        }
        self.outer.iter().for_each(|outer| outer.keeps_for(operation, ttl));
    }

    /// A call that ended left this to be finished.
    pub(crate) fn left_behind(&self, work: JoinHandle<()>) {
        match &self.outer {
            Some(outer) => outer.left_behind(work),
            None => {
                let mut behind = guard(&self.behind);
                behind.retain(|work| !work.is_finished());
                behind.push(work);
            }
        }
    }

    fn take(&self) -> (Option<Outcome>, Option<Ending>) {
        (guard(&self.outcome).take(), guard(&self.ending).take())
    }

    /// The operations that do not keep their results for as long as the horizon, and for how long.
    #[cfg(feature = "message")]
    pub(crate) fn take_forgetful(&self) -> Vec<(String, Duration)> {
        std::mem::take(&mut guard(&self.forgetful))
    }

    /// Waits for what the calls left to be finished.
    #[cfg(feature = "message")]
    pub(crate) async fn settled(&self) {
        loop {
            let Some(work) = guard(&self.behind).pop() else { return };
            // One that panicked or was shut down is over, too.
            let _ = work.await;
        }
    }
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes calls of which no lease reaches beyond `deadline`: for a process that is ended then, such as a
/// function that has so much time left. Who calls again after the deadline need not wait for the lease of
/// a worker that cannot be there any more.
///
/// The calls are not ended at the deadline; their claims are then free to be taken over.
///
/// ```
/// # use idem_runtime as idem;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), idem::Error> {
/// use std::time::Duration;
/// use idem::{MemoryStore, Operation};
///
/// let store = MemoryStore::new();
/// let charge = Operation::new("payments.charge").lease(Duration::from_secs(300));
/// let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
/// let call = charge.run(&store, "order-42", || async { Ok::<_, idem::Error>(7) });
/// assert_eq!(idem::with_deadline(deadline, call).await?, 7);
/// # Ok(())
/// # }
/// ```
pub async fn with_deadline<F: Future>(deadline: Instant, calls: F) -> F::Output {
    DEADLINE.scope(deadline, calls).await
}

/// The deadline of the calls of this task, if there is one.
pub(crate) fn deadline() -> Option<Instant> {
    DEADLINE.try_with(|deadline| *deadline).ok()
}

/// Makes a call and tells whether its body ran or its result was replayed.
///
/// Idempotent calls inside the body of the observed one are not taken for it. Dropping the future
/// drops the call.
///
/// ```
/// # use idem_runtime as idem;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), idem::Error> {
/// use idem::{MemoryStore, Operation};
///
/// let store = MemoryStore::new();
/// let charge = Operation::new("payments.charge");
/// let call = || charge.run(&store, "order-42", || async { Ok::<_, idem::Error>(7) });
/// assert!(!idem::observe(call()).await.outcome.unwrap().is_replayed());
/// assert!(idem::observe(call()).await.outcome.unwrap().is_replayed());
/// # Ok(())
/// # }
/// ```
pub async fn observe<F: Future>(call: F) -> Observed<F::Output> {
    // Not by way of `observed_by`: each function that passes a future on holds it twice.
    let observation = Arc::new(Observation::within_current());
    let value = OBSERVER.scope(Some(observation.clone()), call).await;
    Observed { value, outcome: observation.take().0 }
}

/// As [`observe`], and how the call ended if it gave no value; by an observer that stays when the call is dropped.
#[cfg(feature = "message")]
pub(crate) async fn observed_by<F: Future>(
    observation: &Arc<Observation>,
    call: F,
) -> (F::Output, Option<Outcome>, Option<Ending>) {
    let value = OBSERVER.scope(Some(observation.clone()), call).await;
    let (outcome, ending) = observation.take();
    (value, outcome, ending)
}
