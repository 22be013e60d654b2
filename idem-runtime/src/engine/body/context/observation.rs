//! What a caller can learn about a call it made: whether its body ran or its result was replayed.
//!
//! Owns the observers of a task. The engine reports to them; nothing here decides anything.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;

use super::call_events::{BackgroundWork, CallEnd, CallEvent, CallObserver};
use super::outcome::Outcome;
use idem_core::RecordKey;

tokio::task_local! {
    static OBSERVER: Option<Arc<Observation>>;
}

/// Runs code that an observer of an outer call must not see.
pub(super) fn hidden<T>(inside: impl FnOnce() -> T) -> T {
    OBSERVER.sync_scope(None, inside)
}

/// The return value of [`observe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Observed<T> {
    /// The return value of the call.
    pub value: T,
    /// How the call got it; `None` if it was refused (in flight, mismatch, ...) or made no idempotent call. If it made
    /// several, the outcome of the last one.
    pub outcome: Option<Outcome>,
}

/// An observer of the calls of one task, and the observers around it, which see the same.
pub(crate) struct Observation {
    outer: Option<Arc<Self>>,
    observer: Arc<dyn CallObserver>,
}

impl Observation {
    /// An observer within the current one, if there is one.
    fn within_current(observer: Arc<dyn CallObserver>) -> Option<Arc<Self>> {
        Some(Arc::new(Self { outer: Self::current(), observer }))
    }

    /// The observers of the calls of this task, if there are any.
    pub(crate) fn current() -> Option<Arc<Self>> {
        OBSERVER.try_with(Clone::clone).ok().flatten()
    }

    /// A call with this key begins. Its operation keeps results for `ttl`.
    pub(crate) fn begins(&self, key: &RecordKey, ttl: Duration) {
        self.report(&CallEvent::Started { key, ttl });
    }

    /// A call was granted its key.
    pub(crate) fn granted(&self, key: &RecordKey, attempt: u32) {
        self.report(&CallEvent::Granted { key, attempt });
    }

    pub(crate) fn set(&self, outcome: Outcome) {
        self.report(&CallEvent::Outcome(outcome));
    }

    pub(crate) fn end(&self, end: &CallEnd) {
        self.report(&CallEvent::Ended(end));
    }

    /// A call that ended left this task in the background.
    pub(crate) fn left_behind(&self, task: JoinHandle<()>) {
        self.report(&CallEvent::Background(BackgroundWork::of(task)));
    }

    fn report(&self, event: &CallEvent<'_>) {
        let mut next = Some(self);
        while let Some(observation) = next {
            observation.observer.event(event);
            next = observation.outer.as_deref();
        }
    }
}

/// The observer of [`observe`].
#[derive(Default)]
struct LastOutcome(Mutex<Option<Outcome>>);

impl LastOutcome {
    fn get(&self) -> MutexGuard<'_, Option<Outcome>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallObserver for LastOutcome {
    fn event(&self, event: &CallEvent<'_>) {
        if let CallEvent::Outcome(outcome) = event {
            *self.get() = Some(*outcome);
        }
    }
}

/// Makes a call and returns whether its body ran or its result was replayed.
///
/// It does not report idempotent calls inside the body of the observed call. Dropping the future drops the call.
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
    // Does not call `observed_by`, because each async function that passes a future on stores it twice.
    let last = Arc::new(LastOutcome::default());
    let value = OBSERVER.scope(Observation::within_current(last.clone()), call).await;
    let outcome = *last.get();
    Observed { value, outcome }
}

/// Makes calls with an observer of them: `observer` gets every [`CallEvent`] of the calls that `calls` makes in this task. It
/// does not get those of calls inside the body of an observed call. Observers around this one get the same events.
///
/// The observer outlives the future: a caller that drops it still learns what the call left in the background.
pub fn observed_by<F: Future>(observer: Arc<dyn CallObserver>, calls: F) -> impl Future<Output = F::Output> {
    OBSERVER.scope(Observation::within_current(observer), calls)
}

/// A future for another task, whose calls have the observers and the deadline of this task. For code that runs calls in a task
/// of their own: the observers of a task, and its [`with_deadline`](crate::with_deadline), do not follow into a task that
/// it spawns.
///
/// The running call itself is carried by [`Context::scope`](crate::Context::scope).
pub fn in_another_task<F: Future>(calls: F) -> impl Future<Output = F::Output> {
    let deadline = super::deadline();
    let observed = OBSERVER.scope(Observation::current(), calls);
    async move {
        match deadline {
            Some(deadline) => super::with_deadline(deadline, observed).await,
            None => observed.await,
        }
    }
}
