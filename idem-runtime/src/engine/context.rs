//! What a running body can learn of its call, and what a caller can learn of a call it made (`observation`).
//!
//! Owns the task-locals. The engine sets them; nothing here decides anything.

#[cfg(feature = "message")]
mod held;
mod observation;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use tokio::time::Instant;

use super::steps::Recorder;
use super::waiters::StoreIdentity;
use crate::error::CallId;
use idem_core::protocol::{Fence, Grant};
use idem_core::{Key, RecordKey, support::framed_digest};

#[cfg(feature = "message")]
pub(crate) use held::HeldKeys;
#[cfg(feature = "message")]
pub(crate) use observation::observed_by;
pub(crate) use observation::{Ending, Observation};
pub use observation::{Observed, Outcome, observe};

tokio::task_local! {
    static CURRENT: Frame;
    static DEADLINE: Instant;
}

/// What runs in the task.
#[derive(Clone)]
enum Frame {
    /// The body of a call.
    Call(Current),
    /// A body that nothing guards, within that of this call, if any; and its operation, where its steps are strict.
    Unguarded(Option<Context>, Option<Arc<str>>),
}

/// What a running body can learn about its call: see [`context`].
#[derive(Clone)]
pub struct Context(Arc<dyn Details>);

/// Where a context's answers come from.
pub(crate) trait Details: Send + Sync {
    /// The key of the call.
    fn key(&self) -> &RecordKey;
    /// What was granted; `None` where the call runs unprotected.
    fn grant(&self) -> Option<Grant>;
    /// The call in whose body this one is made.
    fn enclosing(&self) -> Option<&Context>;
    /// What records its steps; `None` where nothing does.
    fn recorder(self: Arc<Self>) -> Option<Arc<dyn Recorder>>;
    /// Whether a step that nothing records is an error.
    fn strict_steps(&self) -> bool;
    /// Resolves once there is no claim any more; `None` where there is none to lose.
    fn claim_ended(self: Arc<Self>) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>>;
    /// Whether this call holds a claim on that key in that store.
    fn holds(&self, key: &RecordKey, store: StoreIdentity) -> bool;
}

struct Fixed {
    key: RecordKey,
    grant: Option<Grant>,
    enclosing: Option<Context>,
    strict_steps: bool,
}

impl Details for Fixed {
    fn key(&self) -> &RecordKey {
        &self.key
    }

    fn grant(&self) -> Option<Grant> {
        self.grant
    }

    fn enclosing(&self) -> Option<&Context> {
        self.enclosing.as_ref()
    }

    fn recorder(self: Arc<Self>) -> Option<Arc<dyn Recorder>> {
        None
    }

    fn strict_steps(&self) -> bool {
        self.strict_steps
    }

    fn claim_ended(self: Arc<Self>) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        None
    }

    fn holds(&self, _: &RecordKey, _: StoreIdentity) -> bool {
        false
    }
}

/// The call whose body this runs in, or `None` outside one.
///
/// It is bound to the task: a body that spawns a task passes it on with [`Context::scope`].
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
    Current::get().map(|current| current.context)
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
        match CURRENT.try_with(Clone::clone) {
            Ok(Frame::Call(current)) => Some(current),
            Ok(Frame::Unguarded(..)) | Err(_) => None,
        }
    }

    /// Runs `poll` with this as the call of the task, hidden from any observer of an outer call.
    pub(crate) fn enter<T>(&self, poll: impl FnOnce() -> T) -> T {
        observation::hidden(|| CURRENT.sync_scope(Frame::Call(self.clone()), poll))
    }

    /// Runs what is inside a step of this call.
    pub(crate) async fn within_step<F: Future>(&self, inside: F) -> F::Output {
        CURRENT.scope(Frame::Call(Self { within_step: true, ..self.clone() }), inside).await
    }
}

/// Runs a body that nothing guards: to it and its steps there is no call, also where it is within another's body.
pub(crate) async fn unguarded_frame<F: Future>(strict_steps: Option<Arc<str>>, body: F) -> F::Output {
    CURRENT.scope(Frame::Unguarded(enclosing(), strict_steps), body).await
}

/// The operation in whose unguarded body this is, where its steps are strict.
pub(crate) fn strict_and_unguarded() -> Option<Arc<str>> {
    match CURRENT.try_with(Clone::clone) {
        Ok(Frame::Unguarded(_, strict)) => strict,
        Ok(Frame::Call(_)) | Err(_) => None,
    }
}

/// The call in whose body the task is, at whatever depth.
pub(crate) fn enclosing() -> Option<Context> {
    match CURRENT.try_with(Clone::clone) {
        Ok(Frame::Call(current)) => Some(current.context),
        Ok(Frame::Unguarded(enclosing, _)) => enclosing,
        Err(_) => None,
    }
}

impl Context {
    pub(crate) fn new(
        key: RecordKey,
        grant: Option<Grant>,
        enclosing: Option<Self>,
        strict_steps: bool,
    ) -> Self {
        Self::of(Arc::new(Fixed { key, grant, enclosing, strict_steps }))
    }

    pub(crate) fn id(&self) -> CallId {
        self.0.key().into()
    }

    pub(crate) fn strict_steps(&self) -> bool {
        self.0.strict_steps()
    }

    /// Whether this call, or one in whose body it is made, holds a claim on that key in that store.
    pub(crate) fn holds(&self, key: &RecordKey, store: StoreIdentity) -> bool {
        let mut call = Some(self);
        while let Some(context) = call {
            if context.0.holds(key, store) {
                return true;
            }
            call = context.0.enclosing();
        }
        false
    }

    pub(crate) fn of(details: Arc<dyn Details>) -> Self {
        Self(details)
    }

    /// Carries the call into another task: in `future`, [`context`] is this one, and steps are recorded under this call.
    ///
    /// For tasks that the body spawns and awaits. A task that outlives the body has no lease: its steps fail with
    /// [`Error::LeaseLost`](crate::Error::LeaseLost) once the call has ended.
    ///
    /// Dropping the future drops `future`.
    ///
    /// ```
    /// # use idem_runtime as idem;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), idem::Error> {
    /// use idem::{Error, MemoryStore, Operation};
    ///
    /// let place = Operation::new("orders.place").run(&MemoryStore::new(), "order-42", || async {
    ///     let context = idem::context().expect("a body has a context");
    ///     let mut parcels = tokio::task::JoinSet::new();
    ///     for parcel in 0..3_u32 {
    ///         let pack = async move {
    ///             idem::step(("pack", parcel), || async { Ok::<_, Error>(parcel) }).await
    ///         };
    ///         let context = context.clone();
    ///         parcels.spawn(async move { context.scope(pack).await });
    ///     }
    ///     let packed: Result<Vec<_>, _> = parcels.join_all().await.into_iter().collect();
    ///     Ok::<_, Error>(packed?.len())
    /// });
    /// assert_eq!(place.await?, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        let current = Current::new(self.clone(), self.0.clone().recorder());
        CURRENT.scope(Frame::Call(current), future).await
    }

    /// Resolves once the call holds its key no more: the claim was lost, or the call has ended, by its result, an error,
    /// a timeout or a dropped caller. For work that the body has begun outside itself, and that must not go on then.
    ///
    /// The body need not ask: it is dropped. A lease that merely could not be renewed is not lost until the store says
    /// so. Of a call that runs unprotected or in a transaction it never resolves.
    ///
    /// ```
    /// # use idem_runtime as idem;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), idem::Error> {
    /// use std::time::Duration;
    /// use idem::{Error, MemoryStore, Operation};
    ///
    /// let export = Operation::new("reports.export").timeout(Duration::from_millis(20));
    /// let (stopped, told) = tokio::sync::oneshot::channel();
    /// let call = export.run(&MemoryStore::new(), "report-7", || async {
    ///     let lost = idem::context().expect("a body has a context").lease_lost();
    ///     let worker = tokio::spawn(async move {
    ///         tokio::select! {
    ///             () = tokio::time::sleep(Duration::from_secs(60)) => {} // The work itself.
    ///             () = lost => stopped.send("stopped").expect("the test listens"),
    ///         }
    ///     });
    ///     worker.await.map_err(|_| unreachable!())
    /// });
    /// assert!(matches!(call.await, Err::<(), _>(Error::TimedOut { .. })));
    /// assert_eq!(told.await.unwrap(), "stopped");
    /// # Ok(())
    /// # }
    /// ```
    pub fn lease_lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let ended = self.0.clone().claim_ended();
        async move {
            match ended {
                Some(ended) => ended.await,
                None => std::future::pending().await,
            }
        }
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

    /// Whether the run before began and did not end, so that its effect may have happened already: its worker died
    /// or lost its lease, its caller went away, it panicked, or it took longer than its timeout. An error that it
    /// returned is none of these.
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

/// Makes calls whose leases end at `deadline` at the latest: for a process that ends then, such as a function with
/// a time limit. A caller after the deadline does not wait for the lease of a worker that has ended.
///
/// It does not end the calls at the deadline; from then on other callers may take over their claims.
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
