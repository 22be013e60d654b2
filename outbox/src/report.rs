//! Events and metrics of the relay. Their names are public; `docs/events.md` lists them. Events never contain
//! an id or a payload.

use std::time::Duration;

use super::message::Message;
use idem_core::StoreError;

macro_rules! of_message {
    ($level:ident, $message:ident, $name:literal, $text:literal $(, $field:ident)?) => {{
        count($name);
        tracing::$level!(
            target: "idem::outbox",
            event = $name,
            topic = &*$message.topic,
            sequence = $message.sequence,
            attempt = $message.attempt,
            $($field,)?
            $text
        );
    }};
}

pub(super) fn published(message: &Message) {
    of_message!(debug, message, "published", "published");
}

/// Reports that a publisher failed. `kind` is the error's kind, or `timeout`, or `panic`.
pub(super) fn publish_failed(message: &Message, kind: &str) {
    of_message!(warn, message, "publish_failed", "the publisher failed", kind);
}

pub(super) fn set_aside(message: &Message) {
    of_message!(error, message, "set_aside", "set aside: look at it, and retry or discard it");
}

/// Reports how many open transactions have enqueued into the topic. The number is 0 if the server was
/// restarted, because then the wait for them begins again.
pub(super) fn held_back(topic: &str, transactions: usize) {
    count("held_back");
    tracing::debug!(
        target: "idem::outbox", event = "held_back", topic, transactions,
        "waits for the end of transactions that wrote into the topic"
    );
}

pub(super) fn taken_over(topic: &str) {
    count("taken_over");
    tracing::warn!(target: "idem::outbox", event = "taken_over", topic, "a relay went away with the topic");
}

pub(super) fn relay_failed(error: &StoreError) {
    count("relay_failed");
    tracing::warn!(
        target: "idem::outbox", event = "relay_failed", error = %error, "the database failed; trying again"
    );
}

#[cfg_attr(not(feature = "metrics"), allow(unused_variables, clippy::missing_const_for_fn))]
fn count(event: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::counter!("idem_outbox_events_total", "event" => event).increment(1);
}

#[cfg_attr(not(feature = "metrics"), allow(unused_variables, clippy::missing_const_for_fn))]
pub(super) fn publish_took(time: Duration) {
    #[cfg(feature = "metrics")]
    metrics::histogram!("idem_outbox_publish_seconds").record(time);
}

/// Records the time from a message's enqueueing to its publication.
#[cfg_attr(not(feature = "metrics"), allow(unused_variables, clippy::missing_const_for_fn))]
pub(super) fn was_on_its_way(time: Duration) {
    #[cfg(feature = "metrics")]
    metrics::histogram!("idem_outbox_delay_seconds").record(time);
}
