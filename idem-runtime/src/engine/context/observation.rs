//! What a caller can learn of a call it made: how it ended, and what it left to be finished.
//!
//! Owns the observer of a task. The engine tells it; nothing here decides anything.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::JoinHandle;

#[cfg(feature = "message")]
use super::held::HeldKeys;
use crate::error::{Error, NotStored};
use idem_core::RecordKey;
use idem_core::protocol::Replay;

tokio::task_local! {
    static OBSERVER: Option<Arc<Observation>>;
}

/// Runs what no observer of an outer call is to see.
pub(super) fn hidden<T>(inside: impl FnOnce() -> T) -> T {
    OBSERVER.sync_scope(None, inside)
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
        /// Whether the run before began and did not end: see [`Context::recovered`](crate::Context::recovered).
        recovered: bool,
        /// Why its result cannot be given to a duplicate, which gets [`Error::ResultNotStored`](crate::Error);
        /// `None` where it can, and where the body failed.
        not_stored: Option<NotStored>,
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
        /// How long until the key is due again.
        retry_after: Duration,
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
    /// The last call: its key, and the attempt that was granted.
    call: Mutex<Option<(RecordKey, Option<u32>)>>,
    #[cfg(feature = "message")]
    held: Option<Arc<HeldKeys>>,
    #[cfg(feature = "message")]
    granted: Mutex<Vec<RecordKey>>,
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

    /// The same for a handler of messages: it adds to the keys that are held, and puts down the operations whose
    /// results are not kept for as long as `horizon`.
    #[cfg(feature = "message")]
    pub(crate) fn of_handler(held: &Arc<HeldKeys>, horizon: Option<Duration>) -> Self {
        Self { horizon, held: Some(held.clone()), ..Self::within_current() }
    }

    /// A call of this key is made.
    pub(crate) fn calls(&self, key: &RecordKey) {
        *guard(&self.call) = Some((key.clone(), None));
        self.outer.iter().for_each(|outer| outer.calls(key));
    }

    /// A call was granted its key.
    pub(crate) fn granted(&self, key: &RecordKey, attempt: u32) {
        *guard(&self.call) = Some((key.clone(), Some(attempt)));
        #[cfg(feature = "message")]
        if let Some(held) = &self.held {
            held.add(key.clone());
            guard(&self.granted).push(key.clone());
        }
        self.outer.iter().for_each(|outer| outer.granted(key, attempt));
    }

    /// The handler has ended: its keys are not held by it any more.
    #[cfg(feature = "message")]
    pub(crate) fn let_go(&self) {
        if let Some(held) = &self.held {
            held.free(&std::mem::take(&mut *guard(&self.granted)));
        }
    }

    /// The key of the last call.
    #[cfg(feature = "message")]
    pub(crate) fn key(&self) -> Option<RecordKey> {
        guard(&self.call).as_ref().map(|(key, _)| key.clone())
    }

    /// The attempt of the last call, if it was granted one.
    #[cfg(feature = "message")]
    pub(crate) fn attempt(&self) -> Option<u32> {
        guard(&self.call).as_ref().and_then(|(_, attempt)| *attempt)
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
