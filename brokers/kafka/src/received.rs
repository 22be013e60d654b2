//! A message of Kafka, and how it is settled.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use idem_runtime::message::{Delivery, Reason};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, Headers, Message as _, OwnedHeaders, OwnedMessage};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::util::Timeout;

use crate::Error;
use crate::taken::Taken;

/// The header of a dead letter with the reason of the rejection: `Reason::as_str`.
pub const REASON: &str = "idem-reason";

/// The header of a dead letter with the text of the handler's last error, as UTF-8, cut at 1,024 bytes.
pub const ERROR: &str = "idem-error";

/// The header of a copy with the number of times that its message was delivered.
pub const DELIVERED: &str = "idem-delivered";

/// The header of a copy with its delay, in milliseconds from its timestamp.
pub const AFTER: &str = "idem-after-ms";

/// Returns the group of a message: see [`Source::group_by`](crate::Source::group_by).
pub(crate) type GroupBy = Arc<dyn Fn(&OwnedMessage) -> Option<String> + Send + Sync>;

/// The state that all messages of a source share.
pub(crate) struct Shared {
    pub(crate) producer: FutureProducer,
    pub(crate) retry_topic: Option<String>,
    pub(crate) dead_letters: String,
    pub(crate) group_by: Option<GroupBy>,
}

/// A message as Kafka delivered it. It dereferences to rdkafka's message.
///
/// A message that is dropped before it is settled is handled again after a second.
pub struct Received {
    taken: Taken,
    /// The text of the handler's last error.
    error: Option<String>,
    shared: Arc<Shared>,
}

impl Received {
    pub(crate) const fn new(taken: Taken, shared: Arc<Shared>) -> Self {
        Self { taken, error: None, shared }
    }

    /// Sends a copy with the message's headers, `new` in place of earlier ones; then marks the offset as done.
    async fn move_to(self, topic: &str, new: &[(&str, &str)]) -> Result<(), Error> {
        match (self.copy_to(topic, new).await, new) {
            // The message has no room for the text of the error, which is the last of `new`.
            (
                Err(KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge)),
                [rest @ .., (ERROR, _)],
            ) => self.copy_to(topic, rest).await,
            (sent, _) => sent,
        }
        .map_err(Error::at("publish a copy"))?;
        self.acknowledge().await
    }

    async fn copy_to(&self, topic: &str, new: &[(&str, &str)]) -> Result<(), KafkaError> {
        let delivered = self.deliveries().unwrap_or(1).to_string();
        let own =
            |name: &str| new.iter().any(|(new, _)| *new == name) || [AFTER, DELIVERED, ERROR].contains(&name);
        let mut headers = OwnedHeaders::new();
        for header in self.headers().into_iter().flat_map(Headers::iter).filter(|header| !own(header.key)) {
            headers = headers.insert(header);
        }
        for (key, value) in new.iter().copied().chain([(DELIVERED, delivered.as_str())]) {
            headers = headers.insert(Header { key, value: Some(value) });
        }
        let mut record = FutureRecord::<[u8], [u8]>::to(topic).headers(headers);
        (record.key, record.payload) = (self.key(), self.payload());
        // The producer's `message.timeout.ms` and the consumer's `broker_timeout` limit this wait.
        let sent = self.shared.producer.send(record, Timeout::Never).await;
        sent.map(drop).map_err(|(error, _)| error)
    }
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

    async fn acknowledge(self) -> Result<(), Error> {
        // The next commit includes it once all before it are done too. If this worker dies first, the message is delivered again
        // and its result is replayed.
        self.taken.done();
        Ok(())
    }

    async fn retry(self, after: Duration) -> Result<(), Error> {
        let shared = self.shared.clone();
        let Some(topic) = &shared.retry_topic else {
            self.taken.later(after);
            return Ok(());
        };
        let after = after.as_millis().to_string();
        self.move_to(topic, &[(AFTER, &after)]).await
    }

    async fn reject(self, reason: Reason) -> Result<(), Error> {
        let shared = self.shared.clone();
        let error = self.error.clone();
        let error = error.as_deref().map(|error| (ERROR, error));
        let new: Vec<_> = [(REASON, reason.as_str())].into_iter().chain(error).collect();
        self.move_to(&shared.dead_letters, &new).await
    }

    async fn give_back(self) -> Result<(), Error> {
        // The offset is not done, so the next worker of the partition continues from it.
        self.taken.leave();
        Ok(())
    }

    fn failed(&mut self, error: &str) {
        self.error = Some(error.to_owned());
    }

    /// The count in the header of a copy, and this worker's own tries. Deliveries to a worker that died are not counted.
    fn deliveries(&self) -> Option<u32> {
        let header = self.headers().and_then(|headers| headers.iter().find(|header| header.key == DELIVERED));
        let copies: u32 =
            header.and_then(|header| std::str::from_utf8(header.value?).ok()?.parse().ok()).unwrap_or(0);
        Some(copies.saturating_add(self.taken.tries()).saturating_add(1))
    }

    fn system(&self) -> Option<&'static str> {
        Some("kafka")
    }

    fn destination(&self) -> Option<String> {
        Some(self.topic().to_owned())
    }

    fn id(&self) -> Option<String> {
        Some(format!("{}/{}@{}", self.topic(), self.partition(), self.offset()))
    }

    fn group(&self) -> Option<String> {
        self.shared.group_by.as_ref()?(self)
    }
}
