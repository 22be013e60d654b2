//! The contents of a dead letter, with the same names on every broker.

use super::report::About;
use super::{Delivery, Reason};

/// The header with the reason of the rejection: [`Reason::as_str`].
pub const REASON: &str = "idem-reason";

/// The header with the text of the handler's last error, cut at 1,024 bytes.
pub const ERROR: &str = "idem-error";

/// The header with the operation of the message's last idempotent call.
pub const OPERATION: &str = "idem-operation";

/// The header with the digest of the key of the message's last idempotent call, as events and the command
/// `idem` show it.
pub const KEY: &str = "idem-key";

/// The header with the number of tries.
pub const TRIES: &str = "idem-tries";

/// The header with the name of the consumer that set the message aside, such as the name of a consumer group.
pub const CONSUMER: &str = "idem-consumer";

/// The header with the subject, topic or queue that the message was sent to.
pub const ORIGIN: &str = "idem-origin";

/// The header with the broker's name for the message: [`Delivery::id`](super::Delivery::id).
pub const MESSAGE: &str = "idem-message";

/// The header with the number of times that the broker has delivered the message. A copy that waits for a
/// retry has this header, too.
pub const DELIVERED: &str = "idem-delivered";

/// The headers of a dead letter, the most important first.
pub(super) const HEADERS: [&str; 9] =
    [REASON, ERROR, TRIES, OPERATION, KEY, ORIGIN, DELIVERED, MESSAGE, CONSUMER];

/// What a dead letter says about its message: see [`Delivery::reject`](super::Delivery::reject).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetter {
    /// Why the message is set aside.
    pub reason: Reason,
    /// The text of the handler's error at the last try: one line without control characters, cut at 1,024
    /// bytes. The text comes from the program and may be private, so keep it out of events.
    pub error: Option<String>,
    /// The operation of the last idempotent call.
    pub operation: Option<String>,
    /// The digest of the key of the last idempotent call.
    pub key: Option<String>,
    /// How often the message was tried.
    pub tries: u32,
}

impl DeadLetter {
    /// A letter with only the reason and the number of tries.
    #[must_use]
    pub const fn new(reason: Reason, tries: u32) -> Self {
        Self { reason, error: None, operation: None, key: None, tries }
    }

    pub(super) fn of(reason: Reason, tries: u32, about: &About) -> Self {
        let operation = about.key.as_ref().map(|key| key.scope().as_str().to_owned());
        let key = about.key.as_ref().map(|key| key.digest().to_string());
        Self { reason, error: about.error.clone(), operation, key, tries }
    }

    /// The same letter without the text of the error, for a message close to the broker's size limit.
    #[must_use]
    pub fn without_error(&self) -> Self {
        Self { error: None, ..self.clone() }
    }

    /// Emits the error event `dead_letter_is_bare`: the message is so large that its dead letter has none of
    /// idem's headers.
    pub fn is_bare(&self, message: &impl Delivery) {
        tracing::error!(
            target: "idem", event = "dead_letter_is_bare", message_id = message.id(), operation = self.operation,
            key = self.key, reason = self.reason.as_str(), tries = self.tries,
            "a dead letter has no room for the headers that say why"
        );
    }

    /// Names and values of the headers of this message's letter, the most important first. `consumer` is the
    /// broker's name for the consumer that sets the message aside, and `origin` is the subject, topic or
    /// queue that the message was sent to.
    #[must_use]
    pub fn headers(
        &self,
        message: &impl Delivery,
        consumer: &str,
        origin: &str,
    ) -> Vec<(&'static str, String)> {
        let number = |number: u32| Some(number.to_string());
        let values = [
            Some(self.reason.as_str().to_owned()),
            self.error.clone(),
            number(self.tries),
            self.operation.clone(),
            self.key.clone(),
            Some(origin.to_owned()),
            message.deliveries().and_then(number),
            message.id(),
            Some(consumer.to_owned()),
        ];
        HEADERS.into_iter().zip(values).filter_map(|(name, value)| Some((name, value?))).collect()
    }
}
