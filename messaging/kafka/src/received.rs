//! A message of Kafka, and how it is settled.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use idem_messages::{CONSUMER, DeadLetter, Delivery, ERROR, MESSAGE, ORIGIN, Reason};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, Headers, Message as _, OwnedHeaders, OwnedMessage};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::util::Timeout;

use crate::Error;
use crate::taken::Taken;

/// The header of a copy with the number of times that its message was delivered.
pub const DELIVERED: &str = "idem-delivered";

/// The header of a copy with its delay, in milliseconds from its timestamp.
pub const AFTER: &str = "idem-after-ms";

/// The state that all messages of a source share.
pub(crate) struct Shared {
    pub(crate) producer: FutureProducer,
    pub(crate) retry_topic: Option<String>,
    pub(crate) dead_letters: String,
}

/// A message as Kafka delivered it. It dereferences to rdkafka's message.
pub struct Received {
    taken: Taken,
    shared: Arc<Shared>,
}

impl Received {
    pub(crate) const fn new(taken: Taken, shared: Arc<Shared>) -> Self {
        Self { taken, shared }
    }

    /// Sends a copy with the message's headers, `new` in place of earlier ones.
    async fn copy_to(&self, topic: &str, new: &[(&str, String)]) -> Result<(), KafkaError> {
        let own = |name: &str| new.iter().any(|(new, _)| *new == name) || [AFTER, ERROR].contains(&name);
        copy_to(&self.shared.producer, topic, self, |name| !own(name), new).await
    }

    fn delivered(&self) -> (&'static str, String) {
        (DELIVERED, self.deliveries().unwrap_or(1).to_string())
    }

    /// The headers of the dead letter.
    fn letter(&self, letter: &DeadLetter) -> Vec<(&'static str, String)> {
        let known = [
            self.delivered(),
            (CONSUMER, self.taken.group().to_owned()),
            (ORIGIN, header(self, ORIGIN).unwrap_or_else(|| self.topic()).to_owned()),
        ];
        let message = self.id().map(|id| (MESSAGE, id));
        letter.headers().into_iter().chain(known).chain(message).collect()
    }
}

/// Sends a copy of a message, with those of its headers that are kept, and the new ones.
pub(crate) async fn copy_to(
    producer: &FutureProducer,
    topic: &str,
    message: &OwnedMessage,
    is_kept: impl Fn(&str) -> bool,
    new: &[(&str, String)],
) -> Result<(), KafkaError> {
    let mut headers = OwnedHeaders::new();
    for header in message.headers().into_iter().flat_map(Headers::iter).filter(|header| is_kept(header.key)) {
        headers = headers.insert(header);
    }
    for (key, value) in new {
        headers = headers.insert(Header { key, value: Some(value) });
    }
    let mut record = FutureRecord::<[u8], [u8]>::to(topic).headers(headers);
    (record.key, record.payload) = (message.key(), message.payload());
    // The producer's `message.timeout.ms` and the consumer's `broker_timeout` limit this wait.
    producer.send(record, Timeout::Never).await.map(drop).map_err(|(error, _)| error)
}

/// The name of a message: where it is in which partition.
pub(crate) fn id(message: &OwnedMessage) -> String {
    format!("{}/{}@{}", message.topic(), message.partition(), message.offset())
}

/// The text of the header with this name.
pub(crate) fn header<'m>(message: &'m OwnedMessage, name: &str) -> Option<&'m str> {
    let header = message.headers()?.iter().find(|header| header.key == name)?;
    std::str::from_utf8(header.value?).ok()
}

const fn is_too_large(sent: &Result<(), KafkaError>) -> bool {
    matches!(sent, Err(KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge)))
}

impl Deref for Received {
    type Target = OwnedMessage;

    fn deref(&self) -> &OwnedMessage {
        self.taken.message()
    }
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Received").field("id", &self.id()).finish_non_exhaustive()
    }
}

impl Delivery for Received {
    type Error = Error;

    async fn acknowledge(&self) -> Result<(), Error> {
        // The next commit includes it once all before it are done too. If this worker dies first, the message is delivered again
        // and its result is replayed.
        self.taken.done();
        Ok(())
    }

    async fn retry(&self, after: Duration) -> Result<(), Error> {
        let Some(topic) = &self.shared.retry_topic else {
            return Err(Error::new("retry the message", "there is no retry topic"));
        };
        let origin = (ORIGIN, header(self, ORIGIN).unwrap_or_else(|| self.topic()).to_owned());
        let new = [(AFTER, after.as_millis().to_string()), self.delivered(), origin];
        let sent = self.copy_to(topic, &new).await;
        // The message has no room for the headers of a retry, and never will.
        if is_too_large(&sent) {
            let letter = DeadLetter::new(Reason::Exhausted, self.deliveries().unwrap_or(1));
            return self.reject(&letter).await;
        }
        sent.map_err(Error::at("publish a copy"))?;
        self.acknowledge().await
    }

    async fn reject(&self, letter: &DeadLetter) -> Result<(), Error> {
        let to = &self.shared.dead_letters;
        let mut sent = self.copy_to(to, &self.letter(letter)).await;
        // The message has no room for the text of the error, or for any header of ours.
        if is_too_large(&sent) {
            sent = self.copy_to(to, &self.letter(&letter.without_error())).await;
        }
        if is_too_large(&sent) {
            sent = self.copy_to(to, &[]).await;
            letter.is_bare(self);
        }
        sent.map_err(Error::at("publish the dead letter"))?;
        self.acknowledge().await
    }

    async fn give_back(&self) -> Result<(), Error> {
        // The offset is not done, so the next worker of the partition continues from it.
        Ok(())
    }

    fn is_held(&self) -> bool {
        self.taken.is_held()
    }

    fn retries_in_place(&self) -> bool {
        self.shared.retry_topic.is_none()
    }

    /// How much longer a message from the retry topic must wait.
    fn delay(&self) -> Duration {
        let due = || {
            let after = header(self, AFTER)?.parse().ok()?;
            let sent = Duration::from_millis(u64::try_from(self.timestamp().to_millis()?).ok()?);
            let due = (UNIX_EPOCH + sent).checked_add(Duration::from_millis(after))?;
            // Compares the sender's clock with ours. A difference between the two changes only the length of the wait.
            due.duration_since(SystemTime::now()).ok()
        };
        due().unwrap_or_default()
    }

    /// The count in the header of a copy. Deliveries to a worker that died are not counted.
    fn deliveries(&self) -> Option<u32> {
        let copies: u32 = header(self, DELIVERED).and_then(|number| number.parse().ok()).unwrap_or(0);
        Some(copies.saturating_add(1))
    }

    fn system(&self) -> Option<&'static str> {
        Some("kafka")
    }

    fn destination(&self) -> Option<String> {
        Some(self.topic().to_owned())
    }

    fn id(&self) -> Option<String> {
        Some(id(self))
    }
}
