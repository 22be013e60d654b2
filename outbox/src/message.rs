//! Messages, and the rules for their topics and ids.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::error::OutboxError;
use idem_core::framed_digest;

/// The longest topic, in bytes.
const LONGEST_TOPIC: usize = 200;
/// The longest id, in bytes. Brokers that deduplicate by an id accept this length.
const LONGEST_ID: usize = 128;

/// The id of a message. It is the same each time the message is published, so that a repeat can be
/// recognised.
///
/// `Debug` shows a digest, because an id may be made from a key; `Display` and [`as_str`](Self::as_str) show
/// the id.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(Arc<str>);

impl MessageId {
    /// A new id: 128 random bits as hexadecimal digits.
    #[must_use]
    pub fn random() -> Self {
        Self(format!("{:032x}", rand::random::<u128>()).into())
    }

    /// The id with this text.
    ///
    /// # Errors
    ///
    /// [`OutboxError::InvalidId`] if it is not 1 to 128 visible ASCII characters.
    pub fn new(text: &str) -> Result<Self, OutboxError> {
        let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        match text.len() {
            1..=LONGEST_ID if is_visible => Ok(Self(text.into())),
            _ => Err(OutboxError::InvalidId),
        }
    }

    /// The text of the id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// An id that was read from the table. It needs no check.
    pub(super) fn stored(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = framed_digest(&[&self.0]);
        f.write_str("MessageId(")?;
        digest[..8].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

pub(super) fn check_topic(topic: &str) -> Result<(), OutboxError> {
    match topic.len() {
        1..=LONGEST_TOPIC if !topic.chars().any(char::is_control) => Ok(()),
        _ => Err(OutboxError::InvalidTopic),
    }
}

/// A message as a [`Publisher`](super::Publisher) gets it.
#[derive(Clone)]
#[non_exhaustive]
pub struct Message {
    /// The message's id, for deduplication by the broker or by the consumer.
    pub id: MessageId,
    /// The message's topic.
    pub topic: Arc<str>,
    /// The message's payload.
    pub payload: Bytes,
    /// The message's number. It is higher than the number of every earlier message in the topic. There are
    /// gaps.
    pub sequence: i64,
    /// The number of this attempt, from 1. Attempts while the broker was unavailable do not count.
    pub attempt: u32,
}

impl Message {
    /// A message that is in no outbox, for tests of a publisher.
    pub fn new(id: MessageId, topic: &str, payload: impl Into<Bytes>) -> Self {
        Self { id, topic: topic.into(), payload: payload.into(), sequence: 0, attempt: 1 }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("id", &self.id)
            .field("topic", &self.topic)
            .field("payload", &format_args!("{} bytes", self.payload.len()))
            .field("sequence", &self.sequence)
            .field("attempt", &self.attempt)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_or_topic_that_some_broker_could_not_take_is_refused() {
        for id in ["", "a b", "ä", "a\n", "x".repeat(129).as_str()] {
            assert!(matches!(MessageId::new(id), Err(OutboxError::InvalidId)), "{id}");
        }
        assert_eq!(MessageId::new(&"x".repeat(128)).unwrap().as_str().len(), 128);
        for topic in ["", "a\nb", "a\0", "x".repeat(201).as_str()] {
            assert!(matches!(check_topic(topic), Err(OutboxError::InvalidTopic)), "{topic}");
        }
        assert!(check_topic("orders for everybody/ä").is_ok());
    }

    #[test]
    fn neither_payload_nor_id_is_shown_by_debug() {
        let message = Message::new(MessageId::new("secret-id").unwrap(), "orders", "secret-payload");
        let shown = format!("{message:?}");
        assert!(
            !shown.contains("secret") && shown.contains("14 bytes") && shown.contains("orders"),
            "{shown}"
        );
    }
}
