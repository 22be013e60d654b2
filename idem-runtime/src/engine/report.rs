//! Events and metrics: everything the engine reports about a call.
//!
//! The names are public: see the crate's documentation. Events show the key's digest, and never a key or a result.

use std::fmt;
use std::time::Duration;

#[cfg(feature = "metrics")]
use tokio::time::Instant;

use crate::engine::record::encoding::NotEncoded;
use crate::error::StoreError;
use idem_core::RecordKey;

/// What happened to a call.
#[derive(Clone, Copy)]
pub(crate) enum Event<'a> {
    /// The key is this call's; its body starts.
    Claimed,
    /// As `Claimed`, after a run that began and did not end.
    Recovered,
    /// The result was recorded.
    Completed,
    /// The body ended, and its result cannot be kept: a duplicate does not get it.
    NotStored(&'a NotEncoded),
    /// The result was encoded, but the encoded bytes do not decode.
    NotReplayable(&'a str),
    /// The claim was released, and the key is free again.
    Released,
    /// A recorded result was returned.
    Replayed,
    /// A step of this name was recorded.
    StepRecorded(&'a str),
    /// A step of this name returned what an earlier run recorded.
    StepReplayed(&'a str),
    /// A step of this name ended, and its value cannot be kept: a later run does not get it.
    StepNotStored(&'a str, &'a NotEncoded),
    /// The value of a step of this name was encoded, but the encoded bytes do not decode.
    StepNotReplayable(&'a str, &'a str),
    /// A step of this name ended and could not be recorded.
    StepUnrecorded(&'a str, &'a StoreError),
    /// The recorded steps of earlier runs could not be read.
    StepsUnread(&'a StoreError),
    /// `recover` found the result of an earlier run; the body does not run.
    Found,
    /// Another call has the key.
    Busy,
    /// The last attempt failed, and the next is not due.
    NotDue,
    /// This call waited for another, this long.
    Waited(Duration),
    /// The key belongs to other arguments.
    Mismatch,
    /// The attempts ran out.
    Exhausted,
    /// The body took longer than its timeout and was dropped.
    TimedOut(Duration),
    /// The claim was lost while the body ran.
    LeaseLost,
    /// The key is in doubt.
    InDoubt,
    /// Another call found this worker's lease lapsed, and the key is in doubt. The worker is alive and continues.
    HeldInDoubt,
    /// The lease could not be renewed this time.
    RenewalFailed(&'a StoreError),
    /// The claim could not be released this time; at the latest it ends with its lease.
    ReleaseFailed(&'a StoreError),
    /// The body ended and its result is not recorded yet; its caller gets the result, and recording continues.
    NotYetRecorded(&'a StoreError),
    /// A result was recorded after its caller had it.
    RecordedLate,
    /// The body ended and its result could not be recorded.
    Unrecorded(Option<&'a StoreError>),
    /// The recorded result does not decode into the return type.
    Undecodable(&'a str),
    /// The store failed, so the call was refused.
    StoreFailed(&'a StoreError),
    /// The store failed, so the body runs unprotected.
    Unprotected(&'a StoreError),
}

impl Event<'_> {
    /// The outcome that the span of the call records, if this event says how the call ended.
    pub(crate) const fn outcome(self) -> Option<&'static str> {
        match self {
            Self::Completed
            | Self::Released
            | Self::Replayed
            | Self::Found
            | Self::Busy
            | Self::NotDue
            | Self::Mismatch
            | Self::Exhausted
            | Self::LeaseLost
            | Self::InDoubt
            | Self::NotYetRecorded(_)
            | Self::Unrecorded(_)
            | Self::Undecodable(_)
            | Self::StoreFailed(_)
            | Self::Unprotected(_) => Some(self.name()),
            _ => None,
        }
    }

    /// The stable name of the event, in events and metrics.
    const fn name(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Recovered => "recovered",
            Self::Completed => "completed",
            Self::NotStored(_) => "not_stored",
            Self::NotReplayable(_) => "not_replayable",
            Self::Released => "released",
            Self::Replayed => "replayed",
            Self::StepRecorded(_) => "step_recorded",
            Self::StepReplayed(_) => "step_replayed",
            Self::StepNotStored(..) => "step_not_stored",
            Self::StepNotReplayable(..) => "step_not_replayable",
            Self::StepUnrecorded(..) => "step_unrecorded",
            Self::StepsUnread(_) => "steps_unread",
            Self::Found => "found",
            Self::Busy => "busy",
            Self::NotDue => "not_due",
            Self::Waited(_) => "waited",
            Self::Mismatch => "mismatch",
            Self::Exhausted => "exhausted",
            Self::TimedOut(_) => "timed_out",
            Self::LeaseLost => "lease_lost",
            Self::InDoubt => "in_doubt",
            Self::HeldInDoubt => "held_in_doubt",
            Self::RenewalFailed(_) => "renewal_failed",
            Self::ReleaseFailed(_) => "release_failed",
            Self::NotYetRecorded(_) => "not_yet_recorded",
            Self::RecordedLate => "recorded_late",
            Self::Unrecorded(_) => "unrecorded",
            Self::Undecodable(_) => "undecodable",
            Self::StoreFailed(_) => "store_failed",
            Self::Unprotected(_) => "unprotected",
        }
    }
}

/// Emits an event, and counts it if metrics are on.
pub(crate) fn event(key: &RecordKey, event: Event<'_>, attempt: u32) {
    #[cfg(feature = "metrics")]
    count(key, event);
    macro_rules! say {
        ($level:ident, $text:literal $(, $($field:tt)*)?) => {
            tracing::$level!(
                target: "idem",
                event = event.name(),
                operation = key.scope().as_str(),
                key = %Shown(key),
                attempt,
                $($($field)*,)?
                $text
            )
        };
    }
    match event {
        Event::Claimed => say!(debug, "claimed"),
        Event::Recovered => say!(warn, "took over from an attempt that ended without a result"),
        Event::Completed => say!(debug, "result recorded"),
        Event::NotStored(reason) => {
            say!(warn, "the result cannot be recorded; duplicates get `result_not_stored`", reason = %reason);
        }
        Event::NotReplayable(reason) => {
            say!(
                warn,
                "the result does not decode from what it was encoded to; duplicates will get `undecodable`",
                reason
            );
        }
        Event::Released => say!(debug, "the body failed; released for a retry"),
        Event::Replayed => say!(debug, "replayed the recorded result"),
        Event::StepRecorded(step) => say!(debug, "step recorded", step),
        Event::StepReplayed(step) => say!(debug, "the step has run before; gave what was recorded", step),
        Event::StepNotStored(step, reason) => {
            say!(warn, "the step's value cannot be recorded; a later run gets `step_not_stored`", step, reason = %reason);
        }
        Event::StepNotReplayable(step, reason) => {
            say!(warn, "the step's value does not decode from what it was encoded to", step, reason);
        }
        Event::StepUnrecorded(step, error) => {
            say!(error, "the step ended and could not be recorded", step, error = %error);
        }
        Event::StepsUnread(error) => {
            say!(warn, "the recorded steps could not be read", error = %error);
        }
        Event::Found => say!(debug, "an earlier run's result was found; the body does not run"),
        Event::Busy => say!(debug, "in flight elsewhere"),
        Event::NotDue => say!(debug, "not due yet"),
        Event::Waited(time) => {
            say!(
                debug,
                "waited for the call in flight",
                waited_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
            );
        }
        Event::Mismatch => say!(warn, "same key, other arguments"),
        Event::Exhausted => say!(warn, "all attempts are used"),
        Event::TimedOut(after) => {
            say!(warn, "the body took longer than its timeout and was dropped", timeout = ?after);
        }
        Event::LeaseLost => say!(error, "the claim was lost while the body ran"),
        Event::InDoubt => say!(error, "in doubt: a worker went away; an operator must resolve it"),
        Event::HeldInDoubt => {
            say!(warn, "the lease had run out and the key is in doubt; its body is alive and goes on");
        }
        Event::RenewalFailed(error) => {
            say!(warn, "the lease could not be renewed; trying again", error = %error);
        }
        Event::ReleaseFailed(error) => {
            say!(warn, "the claim could not be given up; its lease will run out", error = %error);
        }
        Event::NotYetRecorded(error) => {
            say!(
                error,
                "the body succeeded and its result is not recorded yet; recording goes on in the background",
                error = %error
            );
        }
        Event::RecordedLate => say!(warn, "the result was recorded after its caller had it"),
        Event::Unrecorded(Some(error)) => {
            say!(error, "the body succeeded and its result could not be recorded", error = %error);
        }
        Event::Unrecorded(None) => {
            say!(error, "the body succeeded, but its record is gone or decided otherwise");
        }
        Event::Undecodable(reason) => {
            say!(error, "the recorded result does not decode into the return type", reason);
        }
        Event::StoreFailed(error) => say!(warn, "the store failed; the body did not run", error = %error),
        Event::Unprotected(error) => say!(warn, "the store failed; running unprotected", error = %error),
    }
}

#[cfg(feature = "metrics")]
fn count(key: &RecordKey, event: Event<'_>) {
    let operation = label(key);
    metrics::counter!("idem_events_total", "operation" => operation.clone(), "event" => event.name())
        .increment(1);
    if let Event::Waited(time) = event {
        metrics::histogram!("idem_wait_seconds", "operation" => operation).record(time);
    }
}

/// Counts one more (`by` is 1) or one less (-1) result of `bytes` bytes that waits to be recorded.
#[cfg_attr(not(feature = "metrics"), allow(unused_variables, clippy::missing_const_for_fn))]
pub(crate) fn late_results(by: f64, bytes: usize) {
    #[cfg(feature = "metrics")]
    {
        metrics::gauge!("idem_late_results").increment(by);
        // A float holds every number of bytes that fits in memory without rounding.
        #[expect(clippy::cast_precision_loss, reason = "as above")]
        metrics::gauge!("idem_late_bytes").increment(by * bytes as f64);
    }
}

/// Measures how long a body runs or the store takes to answer, if metrics are on.
pub(crate) struct Stopwatch {
    #[cfg(feature = "metrics")]
    started: Instant,
}

impl Stopwatch {
    #[cfg_attr(not(feature = "metrics"), allow(clippy::missing_const_for_fn))]
    pub(crate) fn start() -> Self {
        Self {
            #[cfg(feature = "metrics")]
            started: Instant::now(),
        }
    }

    /// Records how long the body ran.
    #[cfg_attr(not(feature = "metrics"), allow(unused_variables, clippy::unused_self))]
    pub(crate) fn body_ran(&self, key: &RecordKey) {
        #[cfg(feature = "metrics")]
        metrics::histogram!("idem_body_seconds", "operation" => label(key)).record(self.started.elapsed());
    }

    /// Records how long the store took for a `claim` or a `complete`, and whether it failed.
    #[cfg_attr(not(feature = "metrics"), allow(unused_variables, clippy::unused_self))]
    pub(crate) fn store_answered<S, A, E>(
        &self,
        key: &RecordKey,
        request: &'static str,
        answer: &Result<A, E>,
    ) {
        #[cfg(feature = "metrics")]
        metrics::histogram!(
            "idem_store_request_seconds",
            "operation" => label(key),
            "store" => store_label(std::any::type_name::<S>()),
            "request" => request,
            "outcome" => if answer.is_ok() { "answered" } else { "failed" },
        )
        .record(self.started.elapsed());
    }
}

/// The name of a store's type, without its path. For a wrapper it is the store inside.
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

/// Shows the digest of a record's key. The digest is computed when it is formatted, so only if a subscriber asks for
/// it.
pub(crate) struct Shown<'k>(pub(crate) &'k RecordKey);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.digest().fmt(f)
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
