//! What a running body can learn about its call, and what a caller can learn about a call it made (`observation`).
//!
//! Owns the task-locals. The engine sets them; nothing here decides anything.

mod observation;

use std::fmt;
use std::future::pending;
use std::ops::Deref;
use std::sync::Arc;

use tokio::time::Instant;

use crate::engine::claim::claimed::AnyClaim;
use crate::engine::claim::waiters::StoreIdentity;
use crate::engine::prepare::call::Details;
use crate::error::CallId;
use idem_core::protocol::{Fence, Grant};
use idem_core::{Key, RecordKey, framed_digest, hex};

pub(crate) use observation::Observation;
pub use observation::{
    BackgroundWork, CallEnd, CallEvent, CallObserver, Observed, Outcome, in_another_task, observe,
    observed_by,
};

tokio::task_local! {
    static CURRENT: Frame;
    static DEADLINE: Option<Instant>;
    static OBSERVER: Option<Arc<Observation>>;
}

/// What runs in the task.
struct Frame {
    /// The call whose body runs or, for a body without any guard, the call around it.
    call: Option<Context>,
    is_unguarded: bool,
}

/// What a running body can learn about its call: see [`context`].
#[derive(Clone)]
pub struct Context {
    source: Source,
    /// Whether it was asked for inside a step or a `recover` function, where no step may begin.
    pub(crate) within_step: bool,
}

/// The source of a context's answers.
#[derive(Clone)]
enum Source {
    Claimed(Arc<dyn AnyClaim>),
    /// A call that runs unprotected or, with a grant, in a transaction of the caller, so that none of its
    /// steps is recorded.
    Unclaimed(AnyCall, Option<Grant>),
}

/// A call without the type of its store.
type AnyCall = Arc<dyn Deref<Target = Details> + Send + Sync>;

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
    if is_unguarded() { None } else { surroundings().call }
}

/// Runs a body without any guard. The body and its steps see no call, also if it runs inside the body of another call.
pub(crate) async fn unguarded_frame<F: Future>(body: F) -> F::Output {
    CURRENT.scope(Frame { call: surroundings().call, is_unguarded: true }, body).await
}

/// Whether the task is running a body without any guard.
pub(crate) fn is_unguarded() -> bool {
    CURRENT.try_with(|frame| frame.is_unguarded).unwrap_or(false)
}

/// What a call takes over from the task in which it is made.
pub(crate) struct Surroundings {
    /// The innermost call whose body the task is running.
    pub(crate) call: Option<Context>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) observer: Option<Arc<Observation>>,
}

pub(crate) fn surroundings() -> Surroundings {
    Surroundings {
        call: CURRENT.try_with(|frame| frame.call.clone()).ok().flatten(),
        deadline: DEADLINE.try_with(|deadline| *deadline).ok().flatten(),
        observer: OBSERVER.try_with(Clone::clone).ok().flatten(),
    }
}

impl Context {
    /// The context of a call under this claim.
    pub(crate) fn of(claim: Arc<dyn AnyClaim>) -> Self {
        Self { source: Source::Claimed(claim), within_step: false }
    }

    /// The context of a call whose steps are not recorded; without a `grant`, it runs unprotected.
    pub(crate) fn unclaimed(call: AnyCall, grant: Option<Grant>) -> Self {
        Self { source: Source::Unclaimed(call, grant), within_step: false }
    }

    /// The claim under which the steps are recorded; `None` if the call runs unprotected or in a transaction
    /// of the caller.
    pub(crate) const fn claim(&self) -> Option<&Arc<dyn AnyClaim>> {
        match &self.source {
            Source::Claimed(claim) => Some(claim),
            Source::Unclaimed(..) => None,
        }
    }

    fn call(&self) -> &Details {
        match &self.source {
            Source::Claimed(claim) => claim.call(),
            Source::Unclaimed(call, _) => call,
        }
    }

    fn grant(&self) -> Option<Grant> {
        match &self.source {
            Source::Claimed(claim) => Some(claim.held().grant),
            Source::Unclaimed(_, grant) => *grant,
        }
    }

    pub(crate) fn id(&self) -> CallId {
        self.call().id()
    }

    /// Whether this call, or a call around it, holds a claim on this key in this store.
    pub(crate) fn holds(&self, key: &RecordKey, store: StoreIdentity) -> bool {
        let mut call = Some(self);
        while let Some(context) = call {
            // Once a call is over, nobody waits for itself.
            let holds = |claim: &Arc<dyn AnyClaim>| {
                !claim.held().lease.is_over() && claim.call().key == *key && claim.store() == Some(store)
            };
            if context.claim().is_some_and(holds) {
                return true;
            }
            call = context.call().enclosing.as_ref();
        }
        false
    }

    const fn frame(self) -> Frame {
        Frame { call: Some(self), is_unguarded: false }
    }

    /// Runs `poll` with this call as the call of the task. An observer of an outer call does not see the calls that
    /// `poll` makes.
    pub(crate) fn enter<T>(&self, poll: impl FnOnce() -> T) -> T {
        OBSERVER.sync_scope(None, || CURRENT.sync_scope(self.clone().frame(), poll))
    }

    /// Runs the body of a step of this call.
    pub(crate) async fn within_step<F: Future>(&self, inside: F) -> F::Output {
        CURRENT.scope(Self { within_step: true, ..self.clone() }.frame(), inside).await
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
        let is_within = |current: Self| {
            let claims = current.claim().zip(self.claim());
            current.within_step && claims.is_some_and(|(current, own)| Arc::ptr_eq(current, own))
        };
        let within_step = self.within_step || context().is_some_and(is_within);
        CURRENT.scope(Self { within_step, ..self.clone() }.frame(), future).await
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
        let claim = self.claim().cloned();
        async move {
            match claim {
                Some(claim) => claim.held().lease.ended().await,
                None => pending().await,
            }
        }
    }

    /// The scope of the operation.
    #[must_use]
    pub fn operation(&self) -> &str {
        self.call().key.scope().as_str()
    }

    /// The rendered key of the call. It is private data.
    #[must_use]
    pub fn key(&self) -> &Key {
        self.call().key.key()
    }

    /// Which attempt this is; from 1. It is 1 if the call runs unprotected.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.grant().map_or(1, |grant| grant.attempt)
    }

    /// The fence of this attempt, for a downstream service that can refuse a lower one. `None` if the call runs
    /// unprotected, because the store was down and the operation fails open.
    #[must_use]
    pub fn fence(&self) -> Option<Fence> {
        self.grant().map(|grant| grant.fence)
    }

    /// Whether the previous run began and did not end, so that its effect may have happened already: its worker died or
    /// lost its lease, its caller went away, it panicked, or it took longer than its timeout. `false` if the previous
    /// run returned an error.
    #[must_use]
    pub fn recovered(&self) -> bool {
        self.grant().is_some_and(|grant| grant.recovered)
    }

    /// Whether a claim protects the call; `false` only if the store was down and the operation fails open.
    #[must_use]
    pub fn protected(&self) -> bool {
        self.grant().is_some()
    }

    /// A key for the next service. It is the same for every attempt of this call, differs for every other key,
    /// operation or `name`, and does not reveal the key. 32 hexadecimal characters (128 bits of a SHA-256).
    #[must_use]
    pub fn downstream_key(&self, name: &str) -> String {
        let digest = framed_digest(&["idem downstream key", self.operation(), self.key().as_str(), name]);
        hex(&digest[..16])
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("key", &self.call().key).field("grant", &self.grant()).finish()
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
    DEADLINE.scope(Some(deadline), calls).await
}
