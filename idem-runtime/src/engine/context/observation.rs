//! What a caller can learn about a call it made: how it ended, and what work it left in the background.
//!
//! Owns the observer of a task. The engine reports to it; nothing here decides anything.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::JoinHandle;

#[cfg(feature = "message")]
use super::held::{Held, HeldKeys};
use crate::error::{Error, NotStored};
use idem_core::RecordKey;
use idem_core::protocol::{Replay, Timestamp};

tokio::task_local! {
    static OBSERVER: Option<Arc<Observation>>;
}

/// Runs code that an observer of an outer call must not see.
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

/// How a call without a value ended.
#[cfg_attr(not(feature = "message"), allow(dead_code, reason = "`message` reads it"))]
#[derive(Clone, Debug)]
pub(crate) enum Ending {
    /// It was refused, or its result is not available.
    Refused(Error),
    /// Its body failed, and the error is not recorded.
    Released {
        /// Which attempt it was.
        attempt: u32,
        /// How long until the key is due again.
        retry_after: Duration,
    },
    /// It has a terminal error, returned now or recorded earlier.
    Terminal,
}

/// The observer of the calls of one task.
#[derive(Default)]
pub(crate) struct Observation {
    /// The observer around this one, which sees the same.
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
    holds: Mutex<Vec<Held>>,
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

    /// The same for a message handler. It adds the keys of its calls to `held`, and notes the operations that keep their
    /// results for less than `horizon`.
    #[cfg(feature = "message")]
    pub(crate) fn of_handler(held: &Arc<HeldKeys>, horizon: Option<Duration>) -> Self {
        Self { horizon, held: Some(held.clone()), ..Self::within_current() }
    }

    /// A call with this key begins.
    pub(crate) fn calls(&self, key: &RecordKey) {
        *guard(&self.call) = Some((key.clone(), None));
        #[cfg(feature = "message")]
        if let Some(held) = &self.held {
            guard(&self.holds).push(held.add(key));
        }
        self.outer.iter().for_each(|outer| outer.calls(key));
    }

    /// A call was granted its key.
    pub(crate) fn granted(&self, key: &RecordKey, attempt: u32) {
        *guard(&self.call) = Some((key.clone(), Some(attempt)));
        self.outer.iter().for_each(|outer| outer.granted(key, attempt));
    }

    /// The handler has ended and no longer holds its keys. Returns whether another handler with one of them ended
    /// meanwhile.
    #[cfg(feature = "message")]
    pub(crate) fn let_go(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.free(&std::mem::take(&mut *guard(&self.holds))))
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

    /// An operation keeps its results for `ttl`.
    pub(crate) fn keeps_for(&self, operation: &str, ttl: Duration) {
        if self.horizon.is_some_and(|horizon| ttl < horizon) {
            guard(&self.forgetful).push((operation.to_owned(), ttl));
        }
        self.outer.iter().for_each(|outer| outer.keeps_for(operation, ttl));
    }

    /// A call that ended left this work in the background.
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

    /// The operations that keep their results for less than the horizon, with their `ttl`.
    #[cfg(feature = "message")]
    pub(crate) fn take_forgetful(&self) -> Vec<(String, Duration)> {
        std::mem::take(&mut guard(&self.forgetful))
    }

    /// Waits for the work that the calls left in the background.
    #[cfg(feature = "message")]
    pub(crate) async fn settled(&self) {
        loop {
            let Some(work) = guard(&self.behind).pop() else { return };
            // Work that panicked or was shut down is over too.
            let _ = work.await;
        }
    }
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
    let observation = Arc::new(Observation::within_current());
    let value = OBSERVER.scope(Some(observation.clone()), call).await;
    Observed { value, outcome: observation.take().0 }
}

/// Carries into another task what calls learn from the task: the observer, and the deadline.
#[cfg(feature = "message")]
pub(crate) fn as_here<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let deadline = super::deadline();
    let observed = OBSERVER.scope(Observation::current(), future);
    async move {
        match deadline {
            Some(deadline) => super::with_deadline(deadline, observed).await,
            None => observed.await,
        }
    }
}

/// As [`observe`], with an observer that outlives a dropped call. It also returns how the call ended if it gave no
/// value.
#[cfg(feature = "message")]
pub(crate) async fn observed_by<F: Future>(
    observation: &Arc<Observation>,
    call: F,
) -> (F::Output, Option<Outcome>, Option<Ending>) {
    let value = OBSERVER.scope(Some(observation.clone()), call).await;
    let (outcome, ending) = observation.take();
    (value, outcome, ending)
}
