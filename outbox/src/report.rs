//! Events and metrics of the relay. The names are public: see the module's documentation. They never contain an id or a
//! payload.

use std::time::Duration;

use super::message::Message;
use super::publisher::PublishErrorKind;
use idem_core::StoreError;

/// The outcome of a message.
#[derive(Clone, Copy)]
pub(super) enum Event {
    Published,
    PublishFailed(PublishErrorKind),
    TimedOut,
    Panicked,
    SetAside,
}

pub(super) fn of_message(message: &Message, event: Event) {
    macro_rules! say {
        ($level:ident, $name:literal, $text:literal $(, $($field:tt)*)?) => {{
            count($name);
            tracing::$level!(
                target: "idem::outbox",
                event = $name,
                topic = &*message.topic,
                sequence = message.sequence,
                attempt = message.attempt,
                $($($field)*,)?
                $text
            );
        }};
    }
    match event {
        Event::Published => say!(debug, "published", "published"),
        Event::PublishFailed(kind) => {
            say!(warn, "publish_failed", "the publisher failed", kind = ?kind);
        }
        Event::TimedOut => {
            say!(warn, "publish_failed", "the publisher took longer than its timeout", kind = "timeout");
        }
        Event::Panicked => say!(warn, "publish_failed", "the publisher panicked", kind = "panic"),
        Event::SetAside => say!(error, "set_aside", "set aside: look at it, and retry or discard it"),
    }
}

/// Reports that a transaction that wrote into the topic is still open.
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

/// Records how long a publisher took.
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
