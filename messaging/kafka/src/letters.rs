//! The dead letters of a topic, and how their messages go back.
//!
//! Kafka removes no single record. So the letters that were handled are those before the offset that a group of its own has committed,
//! and a letter that is kept before one that was handled goes to the end of the topic.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use idem_messages::{DeadLetters, StoredLetter, is_header_of_letter};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Message as _, OwnedMessage};
use rdkafka::producer::FutureProducer;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use crate::Error;
use crate::received::{AFTER, DELIVERED, copy_to, header};

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
                None => Err(KafkaError::MessageConsumption(RDKafkaErrorCode::OperationTimedOut)),
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
        copy_to(&self.producer, origin, letter, is_own, &[]).await.map_err(Error::at("send the message back"))
    }

    async fn remove(&mut self, letter: OwnedMessage) -> Result<(), Error> {
        let doing = "remove a dead letter";
        for kept in self.kept.remove(&letter.partition()).unwrap_or_default() {
            copy_to(&self.producer, &self.topic, &kept, |_| true, &[]).await.map_err(Error::at(doing))?;
        }
        let (consumer, mut done) = (self.consumer.clone(), TopicPartitionList::new());
        let next = Offset::Offset(letter.offset() + 1);
        done.add_partition_offset(&self.topic, letter.partition(), next).map_err(Error::at(doing))?;
        blocking(move || consumer.commit(&done, CommitMode::Sync)).await
    }

    fn keep(&mut self, letter: OwnedMessage) {
        self.kept.entry(letter.partition()).or_default().push(letter);
    }
}

/// What a letter says of its message.
fn described(letter: &OwnedMessage) -> StoredLetter {
    let id = format!("{}/{}@{}", letter.topic(), letter.partition(), letter.offset());
    StoredLetter::read(id, |name| header(letter, name).map(str::to_owned))
}

/// Assigns all partitions, each from the committed offset. Returns their ends.
fn assign(consumer: &BaseConsumer, topic: &str) -> Result<HashMap<i32, i64>, KafkaError> {
    let metadata = consumer.fetch_metadata(Some(topic), PATIENCE)?;
    let (mut partitions, mut ends) = (TopicPartitionList::new(), HashMap::new());
    for partition in metadata.topics().iter().flat_map(|topic| topic.partitions()) {
        let (_, end) = consumer.fetch_watermarks(topic, partition.id(), PATIENCE)?;
        partitions.add_partition(topic, partition.id());
        ends.insert(partition.id(), end);
    }
    consumer.assign(&partitions)?;
    Ok(ends)
}

/// Runs what blocks outside of the tasks.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, KafkaError> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(Error::at(READ))?.map_err(Error::at(READ))
}
