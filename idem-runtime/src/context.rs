//! What a running body can learn of its call, and what a caller can learn of a call it made (`observation`).
//!
//! Owns the task-locals. The engine sets them; nothing here decides anything.

mod observation;

use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;

use crate::engine::Recorder;
use crate::key::{Key, RecordKey, framed_digest};
use crate::protocol::{Fence, Grant};

#[cfg(feature = "message")]
pub(crate) use observation::observed_by;
pub(crate) use observation::{Ending, Observation};
pub use observation::{Observed, Outcome, observe};

tokio::task_local! {
    static CURRENT: Current;
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
        observation::hidden(|| CURRENT.sync_scope(self.clone(), poll))
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
