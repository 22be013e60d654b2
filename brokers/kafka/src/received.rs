//! A message of Kafka, and how it is settled.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use idem_runtime::message::{Delivery, Reason};
use rdkafka::message::{Header, Headers, Message as _, OwnedHeaders, OwnedMessage};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::util::Timeout;

use crate::Error;
use crate::taken::Taken;

/// The header of a dead letter that says why it is one: `Reason::as_str`.
pub const REASON: &str = "idem-reason";

/// The header of a copy that says how often its message was delivered.
pub const DELIVERED: &str = "idem-delivered";

/// The header of a copy that says how long it is kept back, in milliseconds from its timestamp.
pub const AFTER: &str = "idem-after-ms";

/// Says which messages are in one order: see [`Source::group_by`](crate::Source::group_by).
pub(crate) type GroupBy = Arc<dyn Fn(&OwnedMessage) -> Option<String> + Send + Sync>;

/// What the messages of a source share.
pub(crate) struct Shared {
    pub(crate) producer: FutureProducer,
    pub(crate) retry_topic: Option<String>,
    pub(crate) dead_letters: String,
    pub(crate) group_by: Option<GroupBy>,
}

/// A message as Kafka delivered it: it dereferences to rdkafka's own.
///
/// One that is dropped unsettled is handled again after a second.
pub struct Received {
    taken: Taken,
    shared: Arc<Shared>,
}

impl Received {
    pub(crate) const fn new(taken: Taken, shared: Arc<Shared>) -> Self {
        Self { taken, shared }
    }

    /// Sends it elsewhere with its headers, these in place of earlier ones; then this one is done with.
    async fn move_to(self, topic: &str, new: &[(&str, &str)]) -> Result<(), Error> {
        let delivered = self.deliveries().unwrap_or(1).to_string();
        let own = |name: &str| new.iter().any(|(new, _)| *new == name) || name == AFTER || name == DELIVERED;
        let mut headers = OwnedHeaders::new();
        for header in self.headers().into_iter().flat_map(Headers::iter).filter(|header| !own(header.key)) {
            headers = headers.insert(header);
        }
        for (key, value) in new.iter().copied().chain([(DELIVERED, delivered.as_str())]) {
            headers = headers.insert(Header { key, value: Some(value) });
        }
        let mut record = FutureRecord::<[u8], [u8]>::to(topic).headers(headers);
        (record.key, record.payload) = (self.key(), self.payload());
        // For as long as the producer and the consumer's `broker_timeout` have patience.
        let sent = self.shared.producer.send(record, Timeout::Never).await;
        sent.map_err(|(error, _)| Error::new("publish a copy", error))?;
        self.acknowledge().await
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
        // Committed with the next round, when all before it are done too: if this worker dies before that, it
        // comes again and is replayed.
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
        self.move_to(&shared.dead_letters, &[(REASON, reason.as_str())]).await
    }

    async fn give_back(self) -> Result<(), Error> {
        // It is not done: whoever has the partition next goes on from here.
        self.taken.leave();
        Ok(())
    }

    /// By the header of its copies, and this worker's own tries. What a worker that died had is not counted.
    fn deliveries(&self) -> Option<u32> {
        let header = self.headers().and_then(|headers| headers.iter().find(|header| header.key == DELIVERED));
        let copies: u32 =
            header.and_then(|header| std::str::from_utf8(header.value?).ok()?.parse().ok()).unwrap_or(0);
        Some(copies.saturating_add(self.taken.tries()).saturating_add(1))
    }

    fn id(&self) -> Option<String> {
        Some(format!("{}/{}@{}", self.topic(), self.partition(), self.offset()))
    }

    fn group(&self) -> Option<String> {
        self.shared.group_by.as_ref()?(self)
    }
}
