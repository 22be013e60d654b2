//! The dead letters of a topic, and how their messages go back.
//!
//! Kafka removes no single record. So the letters that were handled are those before the offset that a group of its own has committed,
//! and a letter that is kept before one that was handled goes to the end of the topic.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use idem_messages::{DeadLetters, StoredLetter, is_header_of_letter};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::{Headers, Message as _, OwnedHeaders, OwnedMessage};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::util::Timeout;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use crate::Error;
use crate::received::{AFTER, DELIVERED};

/// How long the broker may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// The end of the name of the group whose offset is behind the letters that were handled.
const GROUP: &str = "-redrive";

const READ: &str = "read the dead letters";

/// The dead letters of a topic.
pub struct Letters {
    consumer: Arc<BaseConsumer>,
    producer: FutureProducer,
    topic: String,
    /// The ends of the partitions that are not read to their end: those that they had at the start.
    ends: HashMap<i32, i64>,
    /// The letters of each partition that were kept since the last one that was handled.
    kept: HashMap<i32, Vec<OwnedMessage>>,
}

impl Letters {
    pub(crate) async fn open(
        mut config: ClientConfig,
        producer: FutureProducer,
        topic: String,
    ) -> Result<Self, Error> {
        let group = format!("{}{GROUP}", config.get("group.id").unwrap_or_default());
        config.set("group.id", group).set("enable.auto.commit", "false").set("enable.partition.eof", "true");
        config.set("auto.offset.reset", "earliest").remove("group.instance.id");
        let name = topic.clone();
        let opened = blocking(move || {
            let consumer: BaseConsumer = config.create()?;
            let ends = assign(&consumer, &name)?;
            Ok((consumer, ends))
        });
        let (consumer, ends) = opened.await?;
        Ok(Self { consumer: Arc::new(consumer), producer, topic, ends, kept: HashMap::new() })
    }

    async fn copy_to(
        &self,
        topic: &str,
        letter: &OwnedMessage,
        is_kept: impl Fn(&str) -> bool,
    ) -> Result<(), KafkaError> {
        let mut headers = OwnedHeaders::new();
        for header in
            letter.headers().into_iter().flat_map(Headers::iter).filter(|header| is_kept(header.key))
        {
            headers = headers.insert(header);
        }
        let mut record = FutureRecord::<[u8], [u8]>::to(topic).headers(headers);
        (record.key, record.payload) = (letter.key(), letter.payload());
        self.producer.send(record, Timeout::Never).await.map(drop).map_err(|(error, _)| error)
    }
}

impl DeadLetters for Letters {
    type Letter = OwnedMessage;

    async fn next(&mut self) -> Result<Option<(StoredLetter, OwnedMessage)>, Error> {
        while !self.ends.is_empty() {
            let consumer = self.consumer.clone();
            let polled = blocking(move || match consumer.poll(PATIENCE) {
                Some(Ok(letter)) => Ok(Ok(letter.detach())),
                Some(Err(KafkaError::PartitionEOF(partition))) => Ok(Err(partition)),
                Some(Err(error)) => Err(error),
                None => {
                    Err(KafkaError::MessageConsumption(rdkafka::error::RDKafkaErrorCode::OperationTimedOut))
                }
            });
            match polled.await? {
                Ok(letter)
                    if self.ends.get(&letter.partition()).is_some_and(|end| letter.offset() < *end) =>
                {
                    return Ok(Some((described(&letter), letter)));
                }
                Ok(later) => self.ends.remove(&later.partition()),
                Err(partition) => self.ends.remove(&partition),
            };
        }
        Ok(None)
    }

    async fn send(&mut self, letter: &OwnedMessage, origin: &str) -> Result<(), Error> {
        let is_own = |name: &str| name != DELIVERED && name != AFTER && !is_header_of_letter(name);
        self.copy_to(origin, letter, is_own).await.map_err(Error::at("send the message back"))
    }

    async fn remove(&mut self, letter: OwnedMessage) -> Result<(), Error> {
        let doing = "remove a dead letter";
        for kept in self.kept.remove(&letter.partition()).unwrap_or_default() {
            self.copy_to(&self.topic, &kept, |_| true).await.map_err(Error::at(doing))?;
        }
        let (consumer, mut done) = (self.consumer.clone(), TopicPartitionList::new());
        let next = Offset::Offset(letter.offset() + 1);
        done.add_partition_offset(&self.topic, letter.partition(), next).map_err(Error::at(doing))?;
        blocking(move || consumer.commit(&done, CommitMode::Sync)).await
    }

    fn keep(&mut self, letter: OwnedMessage) {
        self.kept.entry(letter.partition()).or_default().push(letter);
    }

    async fn close(self) -> Result<(), Error> {
        Ok(())
    }
}

impl fmt::Debug for Letters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Letters").field("topic", &self.topic).finish_non_exhaustive()
    }
}

/// What a letter says of its message.
fn described(letter: &OwnedMessage) -> StoredLetter {
    let header = |name: &str| {
        let header = letter.headers()?.iter().find(|header| header.key == name)?;
        String::from_utf8(header.value?.to_vec()).ok()
    };
    StoredLetter::read(format!("{}/{}@{}", letter.topic(), letter.partition(), letter.offset()), header)
}

/// Assigns all partitions, each from its committed offset. Returns the ends of those that are not at their end.
fn assign(consumer: &BaseConsumer, topic: &str) -> Result<HashMap<i32, i64>, KafkaError> {
    let metadata = consumer.fetch_metadata(Some(topic), PATIENCE)?;
    let mut partitions = TopicPartitionList::new();
    for partition in metadata.topics().iter().flat_map(|topic| topic.partitions()) {
        partitions.add_partition(topic, partition.id());
    }
    let committed = consumer.committed_offsets(partitions, PATIENCE)?;
    let (mut from, mut ends) = (TopicPartitionList::new(), HashMap::new());
    for element in committed.elements() {
        let (first, end) = consumer.fetch_watermarks(topic, element.partition(), PATIENCE)?;
        let next = if let Offset::Offset(next) = element.offset() { next.max(first) } else { first };
        if next < end {
            from.add_partition_offset(topic, element.partition(), Offset::Offset(next))?;
            ends.insert(element.partition(), end);
        }
    }
    consumer.assign(&from)?;
    Ok(ends)
}

/// Runs what blocks outside of the tasks.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, KafkaError> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(Error::at(READ))?.map_err(Error::at(READ))
}
