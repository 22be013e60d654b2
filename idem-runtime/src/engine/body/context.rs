//! What a call takes over from its task, what a running body can learn about its call, and observers of the
//! calls of a task.
//!
//! Owns the task-locals. The engine sets them; nothing here decides anything.

use std::fmt;
use std::future::pending;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use crate::engine::Process;
use crate::engine::claim::claimed::AnyClaim;
use crate::engine::claim::waiters::StoreIdentity;
use crate::engine::prepare::Details;
use crate::engine::report::{CallEvent, CallObserver, Observation, Outcome};
use crate::error::CallId;
use idem_core::protocol::{Fence, Grant};
use idem_core::{Key, RecordKey, framed_digest, hex};

tokio::task_local! {
    static CURRENT: Frame;
    static DEADLINE: Option<Instant>;
    static OBSERVER: Option<Arc<Observation>>;
    /// The process of a simulated worker; not set outside a simulation.
    pub(in crate::engine) static PROCESS: Process;
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
    /// Whether the context was requested inside a step or a `recover` function, where no step may begin.
    pub(crate) within_step: bool,
}

/// The source of a context's answers.
#[derive(Clone)]
enum Source {
    Claimed(Arc<dyn AnyClaim>),
    /// A call whose steps are not recorded: it runs in a transaction of the caller if there is a grant, and
    /// unprotected otherwise.
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
    let call = |frame: &Frame| if frame.is_unguarded { None } else { frame.call.clone() };
    CURRENT.try_with(call).ok().flatten()
}

/// Runs a body without any guard. The body and its steps see no call, even if the body runs inside the body
/// of another call.
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
    pub(crate) process: Process,
}

pub(crate) fn surroundings() -> Surroundings {
    Surroundings {
        call: CURRENT.try_with(|frame| frame.call.clone()).ok().flatten(),
        deadline: DEADLINE.try_with(|deadline| *deadline).ok().flatten(),
        observer: OBSERVER.try_with(Clone::clone).ok().flatten(),
        process: PROCESS.try_with(Clone::clone).unwrap_or_default(),
    }
}

impl Context {
    pub(crate) fn of(claim: Arc<dyn AnyClaim>) -> Self {
        Self { source: Source::Claimed(claim), within_step: false }
    }

    /// The context of a call whose steps are not recorded. Without a `grant`, the call runs unprotected.
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
            // A call that has ended, or has lost its claim, no longer holds its key. So a call inside its
            // body may wait for that key.
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

    /// Runs `poll` with this call as the call of the task. The observers of this call do not see the calls
    /// that `poll` makes.
    pub(crate) fn enter<T>(&self, poll: impl FnOnce() -> T) -> T {
        OBSERVER.sync_scope(None, || CURRENT.sync_scope(self.clone().frame(), poll))
    }

    /// Runs the closure of a step of this call, or its `recover` function.
    pub(crate) async fn within_step<F: Future>(&self, inside: F) -> F::Output {
        CURRENT.scope(Self { within_step: true, ..self.clone() }.frame(), inside).await
    }

    /// Carries the call into another task: inside `future`, [`context`] returns this context, and steps are
    /// recorded under this call.
    ///
    /// Use it for tasks that the body spawns and awaits. A task that outlives the body has no lease: its
    /// steps fail with [`Error::LeaseLost`](crate::Error::LeaseLost) once the call has ended.
    ///
    /// Dropping the returned future drops `future`.
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
        // Inside a running step of this call no other step may begin, even if this context was requested
        // before that step.
        let is_within = |current: Self| {
            let claims = current.claim().zip(self.claim());
            current.within_step && claims.is_some_and(|(current, own)| Arc::ptr_eq(current, own))
        };
        let within_step = self.within_step || context().is_some_and(is_within);
        CURRENT.scope(Self { within_step, ..self.clone() }.frame(), future).await
    }

    /// Resolves when the call no longer holds its key. Either the claim was lost, or the call has ended: with
    /// a result, with an error, by its timeout, or because its caller dropped it. Use this method for work
    /// that the body starts outside itself and that must stop at that time.
    ///
    /// The body itself does not need this method, because the body is dropped when the claim is lost. If a
    /// renewal fails, the lease is not lost until the store says so. In a call that runs unprotected or in a
    /// transaction, the future never resolves.
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

    /// The fence of this attempt, for a downstream service that can refuse requests with a lower fence.
    /// `None` if the call runs unprotected, because the store failed and the operation fails open.
    #[must_use]
    pub fn fence(&self) -> Option<Fence> {
        self.grant().map(|grant| grant.fence)
    }

    /// Whether the previous run began and did not end: its worker died or lost its lease, its caller went
    /// away, it panicked, or it took longer than its timeout. If so, its effect may have happened already.
    /// `false` if the previous run returned an error, unless one of its steps could not be recorded.
    #[must_use]
    pub fn recovered(&self) -> bool {
        self.grant().is_some_and(|grant| grant.recovered)
    }

    /// Whether a claim protects the call; `false` only if the store failed and the operation fails open.
    #[must_use]
    pub fn protected(&self) -> bool {
        self.grant().is_some()
    }

    /// A key for a downstream service: 32 hexadecimal characters (128 bits of a SHA-256). It is the same for
    /// every attempt of this call, is different for every other key, operation or `name`, and does not reveal
    /// the key.
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

/// Runs `calls` with leases that end at `deadline` at the latest. Use it in a process that ends at that time,
/// such as a function with a time limit. Then a caller that comes after the deadline does not have to wait
/// for a lease of the ended process.
///
/// If no time is left, a call is refused with [`Error::NoTimeLeft`](crate::Error::NoTimeLeft), and nothing
/// starts. A call that has started is not stopped at the deadline, but from then on other callers may take
/// over its claim. A renewal after the deadline extends the claim by only a millisecond. So after the
/// deadline a body or a step starts only if the store answers within that millisecond.
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

/// The return value of [`observe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Observed<T> {
    /// The output of the observed future.
    pub value: T,
    /// How the last idempotent call with a result got that result. `None` if no call got a result: there was
    /// no call, or each call was refused (in flight, mismatch, ...) or its body was dropped (timeout, lost
    /// claim).
    pub outcome: Option<Outcome>,
}

/// The observer of [`observe`], which keeps the last outcome.
impl CallObserver for Mutex<Option<Outcome>> {
    fn event(&self, event: &CallEvent<'_>) {
        if let CallEvent::Outcome(outcome) = event {
            *self.lock().unwrap_or_else(PoisonError::into_inner) = Some(*outcome);
        }
    }
}

/// Makes a call and returns whether its body ran or its result was replayed.
///
/// This function does not report idempotent calls inside the body of the observed call. Dropping the future
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
    let last = Arc::new(Mutex::new(None::<Outcome>));
    let value = OBSERVER.scope(within_current(last.clone()), call).await;
    let outcome = *last.lock().unwrap_or_else(PoisonError::into_inner);
    Observed { value, outcome }
}

/// Makes calls and observes them: `observer` gets every [`CallEvent`] of the calls that `calls` makes in this
/// task. It does not get the events of calls inside the body of an observed call. Observers around this one
/// get the same events.
///
/// The observer outlives the future, so a caller that drops the future still learns what the call left in the
/// background.
pub fn observed_by<F: Future>(observer: Arc<dyn CallObserver>, calls: F) -> impl Future<Output = F::Output> {
    OBSERVER.scope(within_current(observer), calls)
}

/// Wraps `calls` for another task: there they keep the observers and the deadline of this task. A spawned
/// task does not inherit the observers and the [`with_deadline`](crate::with_deadline) of the task that
/// spawns it.
///
/// [`Context::scope`](crate::Context::scope) carries the running call itself.
pub fn in_another_task<F: Future>(calls: F) -> impl Future<Output = F::Output> {
    let Surroundings { deadline, observer, .. } = surroundings();
    DEADLINE.scope(deadline, OBSERVER.scope(observer, calls))
}

/// This observer, inside the current observer if there is one.
fn within_current(observer: Arc<dyn CallObserver>) -> Option<Arc<Observation>> {
    let outer = OBSERVER.try_with(Clone::clone).ok().flatten();
    Some(Arc::new(Observation { outer, observer }))
}
