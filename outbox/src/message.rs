//! Messages, and the rules for their topics and ids.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::error::OutboxError;
use idem_core::framed_digest;

/// The longest topic, in bytes.
const LONGEST_TOPIC: usize = 200;
/// The longest id, in bytes: brokers that deduplicate by an id accept this length.
const LONGEST_ID: usize = 128;

/// The id of a message. It is the same each time the message is published, so that a repeat can be recognised.
///
/// `Debug` shows a digest, as an id may be made from a key; `Display` and [`as_str`](Self::as_str) the id.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(Arc<str>);

impl MessageId {
    /// A new id: 128 random bits in the form of a UUID (version 4).
    #[must_use]
    pub fn random() -> Self {
        let bits = rand::random::<u128>() & !(0xf << 76) & !(0b11 << 62) | 4 << 76 | 0b10 << 62;
        let hex = format!("{bits:032x}");
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        Self(parts.join("-").into())
    }

    /// The id with this text.
    ///
    /// # Errors
    ///
    /// [`OutboxError::InvalidId`] if it is not 1 to 128 visible ASCII characters.
    pub fn new(text: &str) -> Result<Self, OutboxError> {
        if text.is_empty() {
            return Err(OutboxError::InvalidId("is empty"));
        }
        if text.len() > LONGEST_ID {
            return Err(OutboxError::InvalidId("is longer than 128 bytes"));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(OutboxError::InvalidId("holds something other than visible ASCII"));
        }
        Ok(Self(text.into()))
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id in the table, without a check.
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

/// Checks a topic.
pub(super) fn check_topic(topic: &str) -> Result<(), OutboxError> {
    if topic.is_empty() {
        return Err(OutboxError::InvalidTopic("is empty"));
    }
    if topic.len() > LONGEST_TOPIC {
        return Err(OutboxError::InvalidTopic("is longer than 200 bytes"));
    }
    if topic.chars().any(char::is_control) {
        return Err(OutboxError::InvalidTopic("holds a control character"));
    }
    Ok(())
}

/// A message as a [`Publisher`](super::Publisher) gets it.
#[derive(Clone)]
pub struct Message {
    id: MessageId,
    topic: Arc<str>,
    payload: Bytes,
    sequence: i64,
    attempt: u32,
}

impl Message {
    /// A message that is in no outbox, for tests of a publisher.
    pub fn new(id: MessageId, topic: &str, payload: impl Into<Bytes>) -> Self {
        Self::stored(id, topic.into(), payload.into(), 0, 1)
    }

    pub(super) const fn stored(
        id: MessageId,
        topic: Arc<str>,
        payload: Bytes,
        sequence: i64,
        attempt: u32,
    ) -> Self {
        Self { id, topic, payload, sequence, attempt }
    }

    /// Its id, for the broker's own deduplication or the consumer's.
    #[must_use]
    pub const fn id(&self) -> &MessageId {
        &self.id
    }

    /// Its topic.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Its payload.
    #[must_use]
    pub const fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// Its number: higher than that of every message before it in its topic. There are gaps.
    #[must_use]
    pub const fn sequence(&self) -> i64 {
        self.sequence
    }

    /// The number of this attempt, from 1. Attempts while the broker was unavailable do not count.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.attempt
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
    fn a_random_id_is_a_uuid_of_version_4_and_another_each_time() {
        let ids: Vec<_> = (0..1_000).map(|_| MessageId::random()).collect();
        for id in &ids {
            let lengths: Vec<_> = id.as_str().split('-').map(str::len).collect();
            assert_eq!(lengths, [8, 4, 4, 4, 12]);
            assert_eq!(&id.as_str()[14..15], "4");
            assert!("89ab".contains(&id.as_str()[19..20]), "{id}");
        }
        assert_eq!(ids.iter().collect::<std::collections::HashSet<_>>().len(), ids.len());
    }

    #[test]
    fn an_id_or_topic_that_some_broker_could_not_take_is_refused() {
        for id in ["", "a b", "ä", "a\n", "x".repeat(129).as_str()] {
            assert!(matches!(MessageId::new(id), Err(OutboxError::InvalidId(_))), "{id}");
        }
        assert_eq!(MessageId::new(&"x".repeat(128)).unwrap().as_str().len(), 128);
        for topic in ["", "a\nb", "a\0", "x".repeat(201).as_str()] {
            assert!(matches!(check_topic(topic), Err(OutboxError::InvalidTopic(_))), "{topic}");
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
