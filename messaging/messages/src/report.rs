//! Events and metrics of messages from a consumer or a batch.
//!
//! Events never show a key or a message. They show the digest of the key of the message's last call, and the
//! broker's id of the message.

#[cfg(feature = "metrics")]
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
#[cfg(feature = "metrics")]
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use idem_core::RecordKey;
use tracing::Span;

use super::{Cause, Delivery, Disposition};
use idem_runtime::Drained;
#[cfg(feature = "metrics")]
use idem_runtime::ErrorKind;

/// What identifies a message in an event.
#[derive(Default)]
pub(crate) struct About {
    /// The broker's name for the message.
    pub(crate) id: Option<String>,
    /// The key of the message's last idempotent call.
    pub(crate) key: Option<RecordKey>,
    pub(crate) queue: Option<String>,
    /// The message's [`Delivery::SYSTEM`].
    system: Option<&'static str>,
    /// The error text of the last try. No event shows it, because it may be private.
    pub(super) error: Option<String>,
}

impl About {
    /// A message, before its first idempotent call.
    pub(super) fn message<M: Delivery>(message: &M) -> Self {
        let (id, queue) = (guarded(|| message.id()), guarded(|| message.destination()));
        Self { id, queue, system: M::SYSTEM, ..Self::default() }
    }
}

/// Calls code of the program or of a broker's crate. Returns that code's value, or `None` if the code panics.
pub(super) fn guarded<T>(said: impl FnOnce() -> Option<T>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(said)).unwrap_or_default()
}

/// The span of one run of a handler, by OpenTelemetry's conventions for messages.
pub(super) fn span(about: &About) -> Span {
    tracing::info_span!(
        target: "idem",
        "message",
        otel.name = about.queue.as_ref().map(|queue| format!("process {queue}")),
        otel.kind = "consumer",
        messaging.system = about.system,
        messaging.operation.name = "process",
        messaging.operation.type = "process",
        messaging.destination.name = about.queue.as_deref(),
        messaging.message.id = about.id.as_deref(),
        idem.message.disposition = tracing::field::Empty,
        idem.message.reason = tracing::field::Empty,
    )
}

/// Adds to the span what follows this run of the handler: how the message is settled, or that it waits.
pub(super) fn came_to(span: &Span, (disposition, cause): (&'static str, Option<Cause>)) {
    span.record("idem.message.disposition", disposition);
    if let Some(cause) = cause {
        span.record("idem.message.reason", cause.as_str());
    }
}

macro_rules! say {
    ($level:ident, $about:expr, $event:literal, $text:literal $(, $($field:tt)*)?) => {{
        let about: &About = $about;
        tracing::$level!(
            target: "idem",
            event = $event,
            message_id = about.id.as_deref(),
            operation = about.key.as_ref().map(|key| key.scope().as_str()),
            key = about.key.as_ref().map(|key| tracing::field::display(key.digest())),
            $($($field)*,)?
            $text
        );
    }};
}

/// Reports a message that is retried or rejected after its handler has ended.
pub(crate) fn settled(about: &About, cause: Cause, attempt: u32, disposition: Disposition) {
    let cause = cause.as_str();
    match disposition {
        Disposition::Acknowledge => {}
        Disposition::Retry { after } => {
            let after_ms = millis(after);
            if cause == "in_flight" || cause == "not_due" {
                say!(
                    debug,
                    about,
                    "message_retried",
                    "a message waits for another's call",
                    cause,
                    attempt,
                    after_ms
                );
            } else {
                say!(warn, about, "message_retried", "a message's handler failed", cause, attempt, after_ms);
            }
        }
        Disposition::Reject { reason } => {
            let reason = reason.as_str();
            say!(warn, about, "message_rejected", "a message is set aside", cause, attempt, reason);
        }
    }
}

pub(crate) fn panicked(about: &About, tries: u32, disposition: Disposition) {
    let text = "a message's handler panicked";
    let rejected = matches!(disposition, Disposition::Reject { .. });
    say!(error, about, "message_panicked", "{text}", tries, rejected);
}

/// Reports that the store failed and the message waits.
pub(crate) fn held(about: &About, cause: Cause, first: bool, extended: bool) {
    count(about, "hold", cause.as_str());
    let cause = cause.as_str();
    if first {
        say!(warn, about, "messages_held", "the store fails: no more messages are taken", cause, extended);
    } else {
        say!(debug, about, "message_held", "the store fails: a message is held", cause);
    }
}

/// Reports that the store answers again, or that no message waits for the store any more.
pub(crate) fn released() {
    tracing::info!(target: "idem", event = "messages_released", "messages are no longer held for the store");
}

/// A group that waits for one of its messages, which this consumer keeps and retries itself. The gauge counts
/// the group until this value is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct HeldUp(());

impl Drop for HeldUp {
    fn drop(&mut self) {
        #[cfg(feature = "metrics")]
        metrics::gauge!("idem_message_groups_held_up").decrement(1.0);
    }
}

/// Reports that a group now waits for one of its messages, which this consumer keeps and retries itself.
/// Called at the first such retry of a message.
pub(crate) fn group_held_up(about: &About, extended: bool) -> HeldUp {
    #[cfg(feature = "metrics")]
    metrics::gauge!("idem_message_groups_held_up").increment(1.0);
    say!(warn, about, "group_held_up", "a group waits for a message that is retried in its place", extended);
    HeldUp(())
}

/// Reports the work that a consumer or a batch could not wait for at its end.
pub(crate) fn drained(left: Drained) {
    if !left.is_complete() {
        let Drained { bodies, results, releases, .. } = left;
        tracing::warn!(
            target: "idem",
            event = "not_drained",
            bodies,
            results,
            releases,
            "calls of this process are not recorded or released yet"
        );
    }
}

pub(crate) fn broker_failed(about: &About, what: &str, error: &str) {
    say!(warn, about, "broker_failed", "the broker failed: {what}", error);
}

#[cfg_attr(not(feature = "metrics"), allow(unused_variables, clippy::missing_const_for_fn))]
pub(crate) fn count(about: &About, disposition: &'static str, reason: &'static str) {
    #[cfg(feature = "metrics")]
    counter(about.queue.as_deref(), disposition, reason).increment(1);
}

#[cfg(feature = "metrics")]
fn counter(queue: Option<&str>, disposition: &'static str, reason: &'static str) -> metrics::Counter {
    let queue = queue.unwrap_or_default().to_owned();
    metrics::counter!("idem_messages_total", "disposition" => disposition, "reason" => reason, "queue" => queue)
}

/// The queues whose counters exist.
#[cfg(feature = "metrics")]
pub(super) type Queues = Mutex<BTreeSet<Option<String>>>;

/// When the first message of a queue arrives, creates the counters that alerts watch, and sets them to 0. So
/// an alert sees the first event of each kind as an increase.
#[cfg(feature = "metrics")]
pub(super) fn count_from_zero(begun: &Queues, queue: &Option<String>) {
    if !begun.lock().unwrap_or_else(PoisonError::into_inner).insert(queue.clone()) {
        return;
    }
    let queue = queue.as_deref();
    let rejected = [
        Cause::Terminal,
        Cause::Unclaimed,
        Cause::Panicked,
        Cause::Refused(ErrorKind::Configuration),
        Cause::Refused(ErrorKind::Mismatch),
        Cause::Refused(ErrorKind::InDoubt),
        Cause::Refused(ErrorKind::Exhausted),
    ];
    for cause in rejected {
        counter(queue, "reject", cause.as_str()).increment(0);
    }
    counter(queue, "hold", Cause::Store.as_str()).increment(0);
    counter(queue, "retry", Cause::Failed.as_str()).increment(0);
    counter(queue, "acknowledge", Cause::Done.as_str()).increment(0);
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
