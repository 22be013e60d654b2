//! What a caller can learn about a call it made: whether its body ran or its result was replayed, and each
//! event on the way.
//!
//! Owns the observers of a task, and the vocabulary between the engine and code that makes calls for others:
//! see [`observer`](crate::observer). The engine reports to them; nothing here decides anything.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use tokio::task::{AbortHandle, JoinHandle};

use super::{DEADLINE, OBSERVER, Surroundings, surroundings};
use crate::error::{Error, NotStored};
use idem_core::RecordKey;
use idem_core::protocol::{Replay, Timestamp};

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
        Some(Arc::new(Self { outer: surroundings().observer, observer }))
    }

    pub(crate) fn report(&self, event: &CallEvent<'_>) {
        let mut next = Some(self);
        while let Some(observation) = next {
            observation.observer.event(event);
            next = observation.outer.as_deref();
        }
    }
}

/// The observer of [`observe`]: the last outcome.
impl CallObserver for Mutex<Option<Outcome>> {
    fn event(&self, event: &CallEvent<'_>) {
        if let CallEvent::Outcome(outcome) = event {
            *self.lock().unwrap_or_else(PoisonError::into_inner) = Some(*outcome);
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
    let last = Arc::new(Mutex::new(None::<Outcome>));
    let value = OBSERVER.scope(Observation::within_current(last.clone()), call).await;
    let outcome = *last.lock().unwrap_or_else(PoisonError::into_inner);
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
    let Surroundings { deadline, observer, .. } = surroundings();
    DEADLINE.scope(deadline, OBSERVER.scope(observer, calls))
}

/// What gets the events of calls: see [`observed_by`](crate::observer::observed_by).
pub trait CallObserver: Send + Sync {
    /// A call that this observer sees comes to this event. It runs inside the call, so it must not block.
    fn event(&self, event: &CallEvent<'_>);
}

/// An event of a call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CallEvent<'a> {
    /// A call begins. Its request to the store comes after this event. A call that is refused before it has a key begins
    /// without one.
    #[non_exhaustive]
    Started {
        /// Its key. It is private data.
        key: &'a RecordKey,
        /// How long its operation keeps results.
        ttl: Duration,
    },
    /// A call has the key, and its body may run.
    #[non_exhaustive]
    Granted {
        /// Its key. It is private data.
        key: &'a RecordKey,
        /// Which attempt it is; from 1.
        attempt: u32,
    },
    /// How a call got its result. A later event of the same call replaces it.
    Outcome(Outcome),
    /// A call ended without a recorded value.
    Ended(&'a CallEnd),
    /// A call that ended, or that its caller dropped, left work in the background: a result to record or a claim to release.
    Background(BackgroundWork),
}

/// How a call without a recorded value ended. The list is complete, so a consumer can decide for each case.
#[derive(Clone, Debug)]
pub enum CallEnd {
    /// It was refused, or its result is not available.
    Refused(Error),
    /// Its body failed, or gave a value that `record_if` refused: the key is free again.
    #[non_exhaustive]
    Released {
        /// Which attempt it was; from 1.
        attempt: u32,
        /// How long until the key is due again.
        retry_after: Duration,
    },
    /// It has a terminal error, returned now or recorded earlier.
    Terminal,
}

/// Work that a call left in the background. [`drain`](crate::drain) waits for that of all calls.
#[derive(Clone)]
pub struct BackgroundWork {
    task: AbortHandle,
    end: Shared<BoxFuture<'static, ()>>,
}

impl BackgroundWork {
    /// The work of this task.
    #[must_use]
    pub fn of<T: Send + 'static>(task: JoinHandle<T>) -> Self {
        // A task that panicked or was shut down has ended, too.
        Self { task: task.abort_handle(), end: task.map(drop).boxed().shared() }
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// Returns when it has ended.
    pub async fn finished(self) {
        self.end.await;
    }
}

impl fmt::Debug for BackgroundWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackgroundWork").field("is_finished", &self.is_finished()).finish()
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
        /// Whether the previous run began and did not end: see [`Context::recovered`](crate::Context::recovered).
        recovered: bool,
        /// Why a duplicate cannot get the result and gets [`Error::ResultNotStored`](crate::Error) instead. `None` if a
        /// duplicate can get it, and if the body failed.
        not_stored: Option<NotStored>,
    },
    /// It got a recorded result; the body did not run in this call.
    #[non_exhaustive]
    Replayed {
        /// The attempt that made the result.
        attempt: u32,
        /// When it was recorded, by the store's clock.
        completed_at: SystemTime,
        /// Until when it is kept, by the store's clock; `None` for ever.
        expires_at: Option<SystemTime>,
    },
    /// Its body ran or `recover` found a value, and `record_if` refused to keep it: the key is free, and the next call runs the
    /// body, or asks `recover` again.
    #[non_exhaustive]
    NotKept {
        /// Which attempt it was; from 1.
        attempt: u32,
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

    /// The attempt that made the value; `None` if the body ran without a claim.
    #[must_use]
    pub const fn attempt(&self) -> Option<u32> {
        match self {
            Self::Executed { attempt, .. }
            | Self::Replayed { attempt, .. }
            | Self::NotKept { attempt }
            | Self::Unrecorded { attempt } => Some(*attempt),
            Self::Unprotected => None,
        }
    }

    pub(crate) fn replayed(replay: &Replay) -> Self {
        let date = |at: Timestamp| UNIX_EPOCH.checked_add(Duration::from_micros(at.as_micros()));
        Self::Replayed {
            attempt: replay.attempt,
            completed_at: date(replay.completed_at).unwrap_or(UNIX_EPOCH),
            expires_at: replay.expires_at.and_then(date),
        }
    }
}
