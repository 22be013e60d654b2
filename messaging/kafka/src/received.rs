//! A message of Kafka, and how it is settled.

use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use idem_messages::{DELIVERED, DeadLetter, Delivery, ERROR, ORIGIN, Reason};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, Headers, Message as _, OwnedHeaders, OwnedMessage};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::util::Timeout;

use crate::Error;
use crate::group::{Context, Settings, Shared};
use crate::offsets::Place;

/// The header that contains the delay of a copy, in milliseconds from the copy's timestamp.
pub const AFTER: &str = "idem-after-ms";

/// A message as Kafka delivered it. It dereferences to rdkafka's message. The message's offset stays open
/// until the message is done, or the partition goes to another worker.
pub struct Received {
    pub(crate) message: OwnedMessage,
    place: Place,
    shared: Arc<Shared>,
    /// The reference is weak, so that only the consumer's thread drops the consumer.
    consumer: Weak<BaseConsumer<Context>>,
}

impl Received {
    pub(crate) fn new(
        message: OwnedMessage,
        place: Place,
        shared: &Arc<Shared>,
        consumer: &Arc<BaseConsumer<Context>>,
    ) -> Self {
        Self { message, place, shared: shared.clone(), consumer: Arc::downgrade(consumer) }
    }

    /// Sends a copy with the message's headers and the `new` headers. A new header replaces an earlier header
    /// of the same name. `AFTER` and `ERROR` of an earlier copy are left out.
    async fn copy_to(&self, topic: &str, new: &[(&str, String)]) -> Result<(), KafkaError> {
        let own = |name: &str| new.iter().any(|(new, _)| *new == name) || [AFTER, ERROR].contains(&name);
        copy_to(&self.shared.settings.producer, topic, self, |name| !own(name), new).await
    }

    /// The topic that the message was first sent to.
    fn origin(&self) -> &str {
        header(self, ORIGIN).unwrap_or_else(|| self.topic())
    }
}

/// Sends a copy of a message. The copy has the message's headers for which `is_kept` returns true, and the
/// `new` headers.
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
    // The producer's `message.timeout.ms` limits this wait. In a worker, the consumer's `broker_timeout`
    // limits it, too.
    producer.send(record, Timeout::Never).await.map(drop).map_err(|(error, _)| error)
}

/// The id of a message: its topic, partition and offset.
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

impl Delivery for Received {
    type Error = Error;

    const SYSTEM: Option<&'static str> = Some("kafka");

    async fn acknowledge(&self) -> Result<(), Error> {
        // The next commit includes the message once all messages before it are done, too. If this worker dies
        // first, the message is delivered again and its result is replayed.
        let mut offsets = self.shared.offsets();
        // The lock is held until the offset is stored, so that an earlier offset cannot overwrite a later
        // offset.
        if let (Some(next), Some(consumer)) = (offsets.done(&self.place), self.consumer.upgrade()) {
            let (topic, partition) = &self.place.partition;
            // Fails if the partition has gone to another worker, which then decides about the message.
            let _ = consumer.store_offset(topic, *partition, next - 1);
        }
        Ok(())
    }

    async fn retry(&self, after: Duration) -> Result<(), Error> {
        let Some(topic) = &self.shared.settings.retry_topic else {
            return Err(Error::new("retry the message", "there is no retry topic"));
        };
        let delivered = self.deliveries().unwrap_or(1).to_string();
        let after = (AFTER, after.as_millis().to_string());
        let new = [after, (DELIVERED, delivered), (ORIGIN, self.origin().to_owned())];
        let sent = self.copy_to(topic, &new).await;
        // The message is too large to get the headers of a retry. Sending it later would fail, too, so the
        // message becomes a dead letter.
        if is_too_large(&sent) {
            let letter = DeadLetter::new(Reason::Exhausted, self.deliveries().unwrap_or(1));
            return self.reject(&letter).await;
        }
        sent.map_err(Error::at("publish a copy"))?;
        self.acknowledge().await
    }

    async fn reject(&self, letter: &DeadLetter) -> Result<(), Error> {
        let Settings { dead_letters: to, group, .. } = &self.shared.settings;
        let headers = |letter: &DeadLetter| letter.headers(self, group, self.origin());
        let mut sent = self.copy_to(to, &headers(letter)).await;
        // The message may have no room for the error text, or for any of our headers.
        if is_too_large(&sent) {
            sent = self.copy_to(to, &headers(&letter.without_error())).await;
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
        self.shared.offsets().holds(&self.place)
    }

    fn retries_in_place(&self) -> bool {
        self.shared.settings.retry_topic.is_none()
    }

    /// How much longer a message from the retry topic must wait.
    fn delay(&self) -> Duration {
        let due = || {
            let after = header(self, AFTER)?.parse().ok()?;
            let sent = Duration::from_millis(u64::try_from(self.timestamp().to_millis()?).ok()?);
            let due = (UNIX_EPOCH + sent).checked_add(Duration::from_millis(after))?;
            // Compares the sender's clock with ours. A difference between the clocks changes only the length
            // of the wait.
            due.duration_since(SystemTime::now()).ok()
        };
        due().unwrap_or_default()
    }

    /// This delivery, plus the earlier deliveries. A copy has their number in a header. Deliveries to a
    /// worker that died are not counted.
    fn deliveries(&self) -> Option<u32> {
        let copies: u32 = header(self, DELIVERED).and_then(|number| number.parse().ok()).unwrap_or(0);
        Some(copies.saturating_add(1))
    }

    fn destination(&self) -> Option<String> {
        Some(self.topic().to_owned())
    }

    fn id(&self) -> Option<String> {
        Some(id(self))
    }
}
