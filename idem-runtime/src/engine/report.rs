//! Everything that the engine reports about a call: events and metrics ([`Event`]), and what observers of the
//! call get ([`CallEvent`]), such as whether the body ran or a recorded result was replayed.
//!
//! The names of events and metrics are public: see the crate's documentation. Events show the key's digest,
//! and never a key or a result. Observers are the interface between the engine and code that makes calls for
//! others: see [`observer`](crate::observer). Nothing here decides anything.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use tokio::task::{AbortHandle, JoinHandle};
#[cfg(feature = "metrics")]
use tokio::time::Instant;
use tracing::Level;

use crate::engine::prepare::Details;
use crate::error::{Error, NotStored, StoreError};
use idem_core::RecordKey;
use idem_core::protocol::{Replay, Timestamp};

/// What happened to a call.
#[derive(Clone, Copy)]
pub(crate) struct Event<'a> {
    level: Level,
    /// The stable name, in events and metrics.
    name: &'static str,
    text: &'static str,
    /// Whether the span of the call records the event's name.
    is_outcome: bool,
    step: Option<&'a str>,
    reason: Option<&'a dyn fmt::Display>,
    error: Option<&'a StoreError>,
    waited: Option<Duration>,
    timeout: Option<Duration>,
}

impl Event<'_> {
    /// This call has the key, and its body starts.
    pub(crate) const CLAIMED: Self = Self::new(Level::DEBUG, "claimed", "claimed");
    /// As `CLAIMED`, after a run that began and did not end.
    pub(crate) const RECOVERED: Self =
        Self::new(Level::WARN, "recovered", "took over from an attempt that ended without a result");
    pub(crate) const COMPLETED: Self = Self::outcome(Level::DEBUG, "completed", "result recorded");
    pub(crate) const NOT_STORED: Self = Self::new(
        Level::WARN,
        "not_stored",
        "the result cannot be recorded; duplicates get `result_not_stored`",
    );
    pub(crate) const NOT_REPLAYABLE: Self = Self::new(
        Level::WARN,
        "not_replayable",
        "the result does not decode from what it was encoded to; duplicates will get `undecodable`",
    );
    pub(crate) const RELEASED: Self =
        Self::outcome(Level::DEBUG, "released", "the body failed; released for a retry");
    pub(crate) const REPLAYED: Self = Self::outcome(Level::DEBUG, "replayed", "replayed the recorded result");
    pub(crate) const STEP_RECORDED: Self = Self::new(Level::DEBUG, "step_recorded", "step recorded");
    pub(crate) const STEP_REPLAYED: Self =
        Self::new(Level::DEBUG, "step_replayed", "the step has run before; gave what was recorded");
    pub(crate) const STEP_NOT_STORED: Self = Self::new(
        Level::WARN,
        "step_not_stored",
        "the step's value cannot be recorded; a later run gets `step_not_stored`",
    );
    pub(crate) const STEP_NOT_REPLAYABLE: Self = Self::new(
        Level::WARN,
        "step_not_replayable",
        "the step's value does not decode from what it was encoded to",
    );
    pub(crate) const STEP_UNRECORDED: Self =
        Self::new(Level::ERROR, "step_unrecorded", "the step ended and could not be recorded");
    pub(crate) const STEPS_UNREAD: Self =
        Self::new(Level::WARN, "steps_unread", "the recorded steps could not be read");
    pub(crate) const FOUND: Self =
        Self::outcome(Level::DEBUG, "found", "an earlier run's result was found; the body does not run");
    pub(crate) const BUSY: Self = Self::outcome(Level::DEBUG, "busy", "in flight elsewhere");
    /// The last attempt failed, and the next is not due.
    pub(crate) const NOT_DUE: Self = Self::outcome(Level::DEBUG, "not_due", "not due yet");
    pub(crate) const WAITED: Self = Self::new(Level::DEBUG, "waited", "waited for the call in flight");
    pub(crate) const MISMATCH: Self = Self::outcome(Level::WARN, "mismatch", "same key, other arguments");
    pub(crate) const EXHAUSTED: Self = Self::outcome(Level::WARN, "exhausted", "all attempts are used");
    pub(crate) const TIMED_OUT: Self =
        Self::new(Level::WARN, "timed_out", "the body took longer than its timeout and was dropped");
    pub(crate) const LEASE_LOST: Self =
        Self::outcome(Level::ERROR, "lease_lost", "the claim was lost while the body ran");
    pub(crate) const IN_DOUBT: Self =
        Self::outcome(Level::ERROR, "in_doubt", "in doubt: a worker went away; an operator must resolve it");
    /// Another call found this worker's lease lapsed, and the key is in doubt. The worker is alive and
    /// continues.
    pub(crate) const HELD_IN_DOUBT: Self = Self::new(
        Level::WARN,
        "held_in_doubt",
        "the lease had run out and the key is in doubt; its body is alive and goes on",
    );
    pub(crate) const RENEWAL_FAILED: Self =
        Self::new(Level::WARN, "renewal_failed", "the lease could not be renewed; trying again");
    pub(crate) const RELEASE_FAILED: Self =
        Self::new(Level::WARN, "release_failed", "the claim could not be given up; its lease will run out");
    pub(crate) const NOT_YET_RECORDED: Self = Self::outcome(
        Level::ERROR,
        "not_yet_recorded",
        "the body succeeded and its result is not recorded yet; recording goes on in the background",
    );
    pub(crate) const RECORDED_LATE: Self =
        Self::new(Level::WARN, "recorded_late", "the result was recorded after its caller had it");
    pub(crate) const UNRECORDED: Self =
        Self::outcome(Level::ERROR, "unrecorded", "the body succeeded and its result could not be recorded");
    pub(crate) const SUPERSEDED: Self = Self::outcome(
        Level::ERROR,
        "unrecorded",
        "the body succeeded, but its record is gone or decided otherwise",
    );
    pub(crate) const UNDECODABLE: Self = Self::outcome(
        Level::ERROR,
        "undecodable",
        "the recorded result does not decode into the return type",
    );
    pub(crate) const STORE_FAILED: Self =
        Self::outcome(Level::WARN, "store_failed", "the store failed; the body did not run");
    pub(crate) const UNPROTECTED: Self =
        Self::outcome(Level::WARN, "unprotected", "the store failed; running unprotected");

    const fn new(level: Level, name: &'static str, text: &'static str) -> Self {
        let (is_outcome, step, reason, error, waited, timeout) = (false, None, None, None, None, None);
        Self { level, name, text, is_outcome, step, reason, error, waited, timeout }
    }

    /// An event that can be the outcome of the call. The call's span has the name of the last such event.
    const fn outcome(level: Level, name: &'static str, text: &'static str) -> Self {
        Self { is_outcome: true, ..Self::new(level, name, text) }
    }
}

impl<'a> Event<'a> {
    pub(crate) const fn of_step(self, name: &'a str) -> Self {
        Self { step: Some(name), ..self }
    }

    pub(crate) const fn because(self, reason: &'a dyn fmt::Display) -> Self {
        Self { reason: Some(reason), ..self }
    }

    pub(crate) const fn by(self, error: &'a StoreError) -> Self {
        Self { error: Some(error), ..self }
    }

    pub(crate) const fn waited(self, time: Duration) -> Self {
        Self { waited: Some(time), ..self }
    }

    pub(crate) const fn after(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }
}

impl Details {
    /// Emits an event of this call, and counts it if metrics are on.
    pub(crate) fn report(&self, event: &Event<'_>, attempt: u32) {
        if event.is_outcome {
            self.span.record("idem.outcome", event.name);
        }
        macro_rules! say {
            ($level:ident) => {
                tracing::$level!(
                    target: "idem",
                    event = event.name,
                    operation = self.key.scope().as_str(),
                    key = %Shown(&self.key),
                    attempt,
                    step = event.step,
                    reason = event.reason.map(tracing::field::display),
                    error = event.error.map(tracing::field::display),
                    waited_ms = event.waited.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
                    timeout = event.timeout.map(tracing::field::debug),
                    "{}",
                    event.text
                )
            };
        }
        // The event is emitted in the span of the call, because the body, background work and a call in a
        // transaction may be polled outside this span.
        self.span.in_scope(|| {
            #[cfg(feature = "metrics")]
            {
                let operation = label(&self.key);
                metrics::counter!("idem_events_total", "operation" => operation.clone(), "event" => event.name)
                    .increment(1);
                if let Some(time) = event.waited {
                    metrics::histogram!("idem_wait_seconds", "operation" => operation).record(time);
                }
            }
            match event.level {
                Level::DEBUG => say!(debug),
                Level::WARN => say!(warn),
                _ => say!(error),
            }
        });
    }

    pub(crate) fn tell(&self, event: &CallEvent<'_>) {
        if let Some(observer) = &self.observer {
            observer.report(event);
        }
    }

    /// Tells the observer that the caller gets this error.
    pub(crate) fn refuse(&self, error: Error) -> Error {
        if let Some(observer) = &self.observer {
            observer.report(&CallEvent::Ended(&CallEnd::Refused(error.clone())));
        }
        error
    }
}

/// Adds a waiting result of `bytes` bytes to the metrics if `by` is 1, and removes it if `by` is -1.
#[cfg_attr(not(feature = "metrics"), allow(unused_variables, clippy::missing_const_for_fn))]
pub(crate) fn late_results(by: f64, bytes: usize) {
    #[cfg(feature = "metrics")]
    {
        metrics::gauge!("idem_late_results").increment(by);
        // A float holds, without rounding, every number of bytes that fits in memory.
        #[expect(clippy::cast_precision_loss, reason = "as above")]
        metrics::gauge!("idem_late_bytes").increment(by * bytes as f64);
    }
}

/// Adds the running time of a body that began at `begin` to the metrics.
#[cfg(feature = "metrics")]
pub(crate) fn body_ran(key: &RecordKey, begin: Instant) {
    metrics::histogram!("idem_body_seconds", "operation" => label(key)).record(begin.elapsed());
}

/// Adds to the metrics how long the store took for a `claim` or a `complete` that was sent at `begin`, and
/// whether the request failed.
#[cfg(feature = "metrics")]
pub(crate) fn store_answered<S>(key: &RecordKey, request: &'static str, begin: Instant, is_answered: bool) {
    metrics::histogram!(
        "idem_store_request_seconds",
        "operation" => label(key),
        "store" => store_label(std::any::type_name::<S>()),
        "request" => request,
        "outcome" => if is_answered { "answered" } else { "failed" },
    )
    .record(begin.elapsed());
}

/// The name of a store's type, without its path. For a wrapper, the name of the store inside it.
#[cfg(feature = "metrics")]
fn store_label(type_name: &'static str) -> &'static str {
    let inner = type_name.rsplit('<').next().unwrap_or(type_name);
    let inner = inner.split([',', '>']).next().unwrap_or(inner);
    inner.rsplit("::").next().unwrap_or(inner)
}

/// The operation's name as a label, without a copy.
#[cfg(feature = "metrics")]
fn label(key: &RecordKey) -> metrics::SharedString {
    match key.scope().to_shared() {
        Ok(name) => metrics::SharedString::const_str(name),
        Err(name) => metrics::SharedString::from_shared(name),
    }
}

/// Shows the digest of a record's key. The digest is computed only when it is formatted, which happens only
/// if a subscriber takes the event.
pub(crate) struct Shown<'k>(pub(crate) &'k RecordKey);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.digest().fmt(f)
    }
}

/// An observer of the calls of one task, and the observers around it, which see the same events.
pub(crate) struct Observation {
    pub(crate) outer: Option<Arc<Self>>,
    pub(crate) observer: Arc<dyn CallObserver>,
}

impl Observation {
    pub(crate) fn report(&self, event: &CallEvent<'_>) {
        let mut next = Some(self);
        while let Some(observation) = next {
            observation.observer.event(event);
            next = observation.outer.as_deref();
        }
    }
}

/// Receives the events of calls: see [`observed_by`](crate::observer::observed_by).
pub trait CallObserver: Send + Sync {
    /// Called for each event of the observed calls. It runs inside the call, so it must not block.
    fn event(&self, event: &CallEvent<'_>);
}

/// An event of a call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CallEvent<'a> {
    /// A call begins. Its request to the store comes after this event. A call that is refused before it has a
    /// key has no such event.
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
    /// How a call got its result. A later outcome of the same call replaces this one.
    Outcome(Outcome),
    /// A call was refused, or ended with an error or a value that is not kept.
    Ended(&'a CallEnd),
    /// A call that ended, or that its caller dropped, left work in the background: a result to record or a
    /// claim to release.
    Background(BackgroundWork),
}

/// How a call without a recorded value ended. The list is complete, so a consumer can decide for each case.
#[derive(Clone, Debug)]
pub enum CallEnd {
    /// The call was refused, or its result is not available.
    Refused(Error),
    /// Its body failed, or returned a value that `record_if` refused, so the key was released. A call whose
    /// `recover` failed under [`OnCrash::InDoubt`](crate::OnCrash::InDoubt) ends like this, too, because the
    /// next call runs `recover` again.
    #[non_exhaustive]
    Released {
        /// Which attempt it was; from 1.
        attempt: u32,
        /// How long until the key is due again.
        retry_after: Duration,
    },
    /// The call has a terminal error, returned now or recorded earlier.
    Terminal,
}

/// Work that a call left in the background. [`drain`](crate::drain) waits for such work of all calls.
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

    /// Whether the work has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// Returns when the work has ended.
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
    /// Its body ran, or `recover` found the result of an earlier run.
    #[non_exhaustive]
    Executed {
        /// Which attempt it was; from 1.
        attempt: u32,
        /// Whether the previous run began and did not end: see
        /// [`Context::recovered`](crate::Context::recovered).
        recovered: bool,
        /// Why a duplicate cannot get the result and gets [`Error::ResultNotStored`](crate::Error) instead.
        /// `None` if a duplicate can get it, or if the body failed.
        not_stored: Option<NotStored>,
    },
    /// The call got a recorded result. Its own body did not run, or the claim was lost while the body ran, so
    /// the body's own result does not count.
    #[non_exhaustive]
    Replayed {
        /// The attempt that made the result.
        attempt: u32,
        /// When it was recorded, by the store's clock.
        completed_at: SystemTime,
        /// Until when it is kept, by the store's clock; `None` for ever.
        expires_at: Option<SystemTime>,
    },
    /// `record_if` refused to keep the value that the body returned or `recover` found. The key was released.
    /// The next call runs the body again, or `recover` if `recover` found the value.
    #[non_exhaustive]
    NotKept {
        /// Which attempt it was; from 1.
        attempt: u32,
    },
    /// Its body ran, but its result was not recorded in time. If the store failed for longer than the store
    /// timeout, recording may continue in the background. If the key was released or its record was deleted,
    /// the engine drops the result. Until a result is recorded, another caller may run the body again.
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

#[cfg(all(test, feature = "metrics"))]
mod tests {
    use super::store_label;

    #[test]
    fn a_store_is_labelled_by_its_own_type_whatever_it_is_wrapped_in() {
        for (type_name, label) in [
            ("idem_postgres::PostgresStore", "PostgresStore"),
            ("idem::Cached<idem::Transformed<idem_redis::RedisStore, idem::Encryption>>", "RedisStore"),
            ("MemoryStore", "MemoryStore"),
        ] {
            assert_eq!(store_label(type_name), label);
        }
    }
}
