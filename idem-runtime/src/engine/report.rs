//! Events and metrics: everything the engine says about a call to those who watch.
//!
//! The names are public: see the crate's documentation. No key and no result is ever said; the
//! digest is.

use std::time::Duration;

#[cfg(feature = "metrics")]
use tokio::time::Instant;

use crate::error::StoreError;
use crate::key::RecordKey;

/// What happened to a call.
#[derive(Clone, Copy)]
pub(crate) enum Event<'a> {
    /// The key is this call's; its body starts.
    Claimed,
    /// As `Claimed`, from an attempt whose lease ran out.
    Recovered,
    /// The result was recorded.
    Completed,
    /// The body failed in a way worth retrying, and the key is free again.
    Released,
    /// A recorded result was given.
    Replayed,
    /// A step of this name was recorded.
    StepRecorded(&'a str),
    /// A step of this name was given what an earlier run recorded.
    StepReplayed(&'a str),
    /// A step of this name ended and could not be recorded.
    StepUnrecorded(&'a str, &'a StoreError),
    /// What earlier runs recorded of their steps could not be read.
    StepsUnread(&'a StoreError),
    /// `recover` found the result of an earlier run; the body does not run.
    Found,
    /// Another call has the key.
    Busy,
    /// This call waited for another, this long.
    Waited(Duration),
    /// The key belongs to other arguments.
    Mismatch,
    /// The attempts ran out.
    Exhausted,
    /// The claim was taken over while the body ran.
    LeaseLost,
    /// A worker went away under `on_crash = "in_doubt"`.
    InDoubt,
    /// The lease could not be renewed this time.
    RenewalFailed(&'a StoreError),
    /// The claim could not be given up; the lease will run out.
    ReleaseFailed(&'a StoreError),
    /// The body succeeded and its result could not be recorded.
    Unrecorded(Option<&'a StoreError>),
    /// The recorded result is not of the return type.
    Undecodable,
    /// The store failed, so the call was refused.
    StoreFailed(&'a StoreError),
    /// The store failed, so the body runs unprotected.
    Unprotected(&'a StoreError),
}

impl Event<'_> {
    /// The stable word for it, in events and metrics.
    const fn name(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Recovered => "recovered",
            Self::Completed => "completed",
            Self::Released => "released",
            Self::Replayed => "replayed",
            Self::StepRecorded(_) => "step_recorded",
            Self::StepReplayed(_) => "step_replayed",
            Self::StepUnrecorded(..) => "step_unrecorded",
            Self::StepsUnread(_) => "steps_unread",
            Self::Found => "found",
            Self::Busy => "busy",
            Self::Waited(_) => "waited",
            Self::Mismatch => "mismatch",
            Self::Exhausted => "exhausted",
            Self::LeaseLost => "lease_lost",
            Self::InDoubt => "in_doubt",
            Self::RenewalFailed(_) => "renewal_failed",
            Self::ReleaseFailed(_) => "release_failed",
            Self::Unrecorded(_) => "unrecorded",
            Self::Undecodable => "undecodable",
            Self::StoreFailed(_) => "store_failed",
            Self::Unprotected(_) => "unprotected",
        }
    }
}

/// Says what happened: an event, and a count where metrics are on.
pub(super) fn event(key: &RecordKey, event: Event<'_>, attempt: u32) {
    #[cfg(feature = "metrics")]
    count(key, event);
    macro_rules! say {
        ($level:ident, $text:literal $(, $($field:tt)*)?) => {
            tracing::$level!(
                target: "idem",
                event = event.name(),
                operation = key.scope().as_str(),
                key = %key.shown(),
                attempt,
                $($($field)*,)?
                $text
            )
        };
    }
    match event {
        Event::Claimed => say!(debug, "claimed"),
        Event::Recovered => say!(warn, "took over from an attempt whose lease ran out"),
        Event::Completed => say!(debug, "result recorded"),
        Event::Released => say!(debug, "the body failed; released for a retry"),
        Event::Replayed => say!(debug, "replayed the recorded result"),
        Event::StepRecorded(step) => say!(debug, "step recorded", step),
        Event::StepReplayed(step) => say!(debug, "the step has run before; gave what was recorded", step),
        Event::StepUnrecorded(step, error) => {
            say!(error, "the step ended and could not be recorded", step, error = %error);
        }
        Event::StepsUnread(error) => {
            say!(warn, "the recorded steps could not be read", error = %error);
        }
        Event::Found => say!(debug, "an earlier run's result was found; the body does not run"),
        Event::Busy => say!(debug, "in flight elsewhere"),
        Event::Waited(time) => {
            say!(
                debug,
                "waited for the call in flight",
                waited_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
            );
        }
        Event::Mismatch => say!(warn, "same key, other arguments"),
        Event::Exhausted => say!(warn, "all attempts are used"),
        Event::LeaseLost => say!(error, "the lease was lost to another worker"),
        Event::InDoubt => say!(error, "in doubt: a worker went away; an operator must resolve it"),
        Event::RenewalFailed(error) => {
            say!(warn, "the lease could not be renewed; trying again", error = %error);
        }
        Event::ReleaseFailed(error) => {
            say!(warn, "the claim could not be given up; its lease will run out", error = %error);
        }
        Event::Unrecorded(Some(error)) => {
            say!(error, "the body succeeded and its result could not be recorded", error = %error);
        }
        Event::Unrecorded(None) => {
            say!(error, "the body succeeded, but its record is gone or decided otherwise");
        }
        Event::Undecodable => say!(error, "the recorded result does not decode into the return type"),
        Event::StoreFailed(error) => say!(warn, "the store failed; the body did not run", error = %error),
        Event::Unprotected(error) => say!(warn, "the store failed; running unprotected", error = %error),
    }
}

#[cfg(feature = "metrics")]
fn count(key: &RecordKey, event: Event<'_>) {
    let operation = key.scope().label();
    metrics::counter!("idem_events_total", "operation" => operation.clone(), "event" => event.name())
        .increment(1);
    if let Event::Waited(time) = event {
        metrics::histogram!("idem_wait_seconds", "operation" => operation).record(time);
    }
}

/// Tells how long a body runs, where metrics are on.
pub(super) struct Stopwatch {
    #[cfg(feature = "metrics")]
    started: Instant,
}

impl Stopwatch {
    #[cfg_attr(not(feature = "metrics"), allow(clippy::missing_const_for_fn))]
    pub(super) fn start() -> Self {
        Self {
            #[cfg(feature = "metrics")]
            started: Instant::now(),
        }
    }

    /// Says how long the body ran.
    #[cfg_attr(not(feature = "metrics"), allow(unused_variables, clippy::unused_self))]
    pub(super) fn body_ran(&self, key: &RecordKey) {
        #[cfg(feature = "metrics")]
        metrics::histogram!("idem_body_seconds", "operation" => key.scope().label())
            .record(self.started.elapsed());
    }
}
