//! What a running body can learn about its call, and what a caller can learn about a call it made (`observation`).
//!
//! Owns the task-locals. The engine sets them; nothing here decides anything.

mod call_events;
mod observation;
mod outcome;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use tokio::time::Instant;

use crate::engine::body::steps::Recorder;
use crate::engine::claim::waiters::StoreIdentity;
use crate::error::CallId;
use idem_core::protocol::{Fence, Grant};
use idem_core::{Key, RecordKey, framed_digest};

pub use call_events::{BackgroundWork, CallEnd, CallEvent, CallObserver};
pub(crate) use observation::Observation;
pub use observation::{Observed, in_another_task, observe, observed_by};
pub use outcome::Outcome;

tokio::task_local! {
    static CURRENT: Frame;
    static DEADLINE: Instant;
}

/// What runs in the task.
#[derive(Clone)]
enum Frame {
    /// The body of a call.
    Call(Current),
    /// A body that runs without any guard, and the call around it, if any.
    Unguarded(Option<Context>),
}

/// What a running body can learn about its call: see [`context`].
#[derive(Clone)]
pub struct Context {
    details: Arc<dyn Details>,
    /// Whether it was asked for inside a step or a `recover` function, where no step may begin.
    within_step: bool,
}

/// The source of a context's answers.
pub(crate) trait Details: Send + Sync {
    /// The key of the call.
    fn key(&self) -> &RecordKey;
    /// The grant of the call; `None` if it runs unprotected.
    fn grant(&self) -> Option<Grant>;
    /// The call whose body makes this one.
    fn enclosing(&self) -> Option<&Context>;
    /// The recorder of its steps; `None` if steps are not recorded.
    fn recorder(self: Arc<Self>) -> Option<Arc<dyn Recorder>>;
    /// Resolves when the claim is gone; `None` if the call has no claim.
    fn claim_ended(self: Arc<Self>) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>>;
    /// Whether this call holds a claim on this key in this store.
    fn holds(&self, key: &RecordKey, store: StoreIdentity) -> bool;
}

struct Fixed {
    key: RecordKey,
    grant: Option<Grant>,
    enclosing: Option<Context>,
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

    fn claim_ended(self: Arc<Self>) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        None
    }

    fn holds(&self, _: &RecordKey, _: StoreIdentity) -> bool {
        false
    }
}

/// The call whose body is running, or `None` outside a body.
///
/// The context is bound to the task. Use [`Context::scope`] to pass it to a task that the body spawns.
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

/// The call whose body is running, as the engine sees it.
#[derive(Clone)]
pub(crate) struct Current {
    pub(crate) context: Context,
    /// The recorder of its steps; `None` if the call runs unprotected or in a transaction of the caller.
    pub(crate) recorder: Option<Arc<dyn Recorder>>,
}

impl Current {
    pub(crate) fn new(context: Context, recorder: Option<Arc<dyn Recorder>>) -> Self {
        Self { context, recorder }
    }

    pub(crate) fn get() -> Option<Self> {
        match CURRENT.try_with(Clone::clone) {
            Ok(Frame::Call(current)) => Some(current),
            Ok(Frame::Unguarded(_)) | Err(_) => None,
        }
    }

    /// Runs `poll` with this call as the call of the task. An observer of an outer call does not see the calls that
    /// `poll` makes.
    pub(crate) fn enter<T>(&self, poll: impl FnOnce() -> T) -> T {
        observation::hidden(|| CURRENT.sync_scope(Frame::Call(self.clone()), poll))
    }

    /// Runs the body of a step of this call.
    pub(crate) async fn within_step<F: Future>(&self, inside: F) -> F::Output {
        let context = Context { within_step: true, ..self.context.clone() };
        CURRENT.scope(Frame::Call(Self { context, recorder: self.recorder.clone() }), inside).await
    }
}

/// Runs a body without any guard. The body and its steps see no call, also if it runs inside the body of another call.
pub(crate) async fn unguarded_frame<F: Future>(body: F) -> F::Output {
    CURRENT.scope(Frame::Unguarded(enclosing()), body).await
}

/// Whether the task is running a body without any guard.
pub(crate) fn is_unguarded() -> bool {
    CURRENT.try_with(|frame| matches!(frame, Frame::Unguarded(_))).unwrap_or(false)
}

/// The innermost call whose body the task is running.
pub(crate) fn enclosing() -> Option<Context> {
    match CURRENT.try_with(Clone::clone) {
        Ok(Frame::Call(current)) => Some(current.context),
        Ok(Frame::Unguarded(enclosing)) => enclosing,
        Err(_) => None,
    }
}

impl Context {
    pub(crate) fn new(key: RecordKey, grant: Option<Grant>, enclosing: Option<Self>) -> Self {
        Self::of(Arc::new(Fixed { key, grant, enclosing }))
    }

    /// Whether no step may begin here.
    pub(crate) const fn is_within_step(&self) -> bool {
        self.within_step
    }

    pub(crate) fn id(&self) -> CallId {
        self.details.key().into()
    }

    /// Whether this call, or a call around it, holds a claim on this key in this store.
    pub(crate) fn holds(&self, key: &RecordKey, store: StoreIdentity) -> bool {
        let mut call = Some(self);
        while let Some(context) = call {
            if context.details.holds(key, store) {
                return true;
            }
            call = context.details.enclosing();
        }
        false
    }

    pub(crate) fn of(details: Arc<dyn Details>) -> Self {
        Self { details, within_step: false }
    }

    /// Carries the call into another task: inside `future`, [`context`] returns this context, and steps are recorded
    /// under this call.
    ///
    /// Use it for tasks that the body spawns and awaits. A task that outlives the body has no lease: its steps fail
    /// with [`Error::LeaseLost`](crate::Error::LeaseLost) once the call has ended.
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
        // A step that is running stays one, also where the context is from before it.
        let is_within = |current: Current| {
            current.context.within_step && Arc::ptr_eq(&current.context.details, &self.details)
        };
        let within_step = self.within_step || Current::get().is_some_and(is_within);
        let context = Self { within_step, ..self.clone() };
        let current = Current::new(context, self.details.clone().recorder());
        CURRENT.scope(Frame::Call(current), future).await
    }

    /// Resolves when the call no longer holds its key: the claim was lost, or the call has ended, by its result, an
    /// error, a timeout or a dropped caller. Use it for work that the body starts outside itself and that must stop
    /// then.
    ///
    /// The body itself does not need it, because it is dropped when the claim is lost. If a renewal fails, the lease is
    /// not lost until the store says so. In a call that runs unprotected or in a transaction, the future never
    /// resolves.
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
        let ended = self.details.clone().claim_ended();
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
        self.details.key().scope().as_str()
    }

    /// The rendered key of the call. It is private data.
    #[must_use]
    pub fn key(&self) -> &Key {
        self.details.key().key()
    }

    /// Which attempt this is; from 1. It is 1 if the call runs unprotected.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.details.grant().map_or(1, |grant| grant.attempt)
    }

    /// The fence of this attempt, for a downstream service that can refuse a lower one. `None` if the call runs
    /// unprotected, because the store was down and the operation fails open.
    #[must_use]
    pub fn fence(&self) -> Option<Fence> {
        self.details.grant().map(|grant| grant.fence)
    }

    /// Whether the previous run began and did not end, so that its effect may have happened already: its worker died or
    /// lost its lease, its caller went away, it panicked, or it took longer than its timeout. `false` if the previous
    /// run returned an error.
    #[must_use]
    pub fn recovered(&self) -> bool {
        self.details.grant().is_some_and(|grant| grant.recovered)
    }

    /// Whether a claim protects the call; `false` only if the store was down and the operation fails open.
    #[must_use]
    pub fn protected(&self) -> bool {
        self.details.grant().is_some()
    }

    /// A key for the next service. It is the same for every attempt of this call, differs for every other key,
    /// operation or `name`, and does not reveal the key. 32 hexadecimal characters (128 bits of a SHA-256).
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
        f.debug_struct("Context")
            .field("key", self.details.key())
            .field("grant", &self.details.grant())
            .finish()
    }
}

/// Runs `calls` with leases that end at `deadline` at the latest. For a process that ends at that time, such as a
/// function with a time limit: a caller after the deadline does not wait for the lease of a worker that has ended.
///
/// With no time left, a call is refused with [`Error::NoTimeLeft`](crate::Error::NoTimeLeft), and nothing starts. A call that
/// has started is not stopped at the deadline. From then on other callers may take over their claims, and a body or a step starts
/// only if the store's answer shows that the claim is still held at that moment, which it is for a millisecond.
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
