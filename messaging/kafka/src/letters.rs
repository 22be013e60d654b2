//! The dead letters of a topic, and how their messages go back.
//!
//! Kafka removes no single record. So the letters that were handled are those before the offset that a group of its own has committed,
//! and a letter that is kept before one that was handled goes to the end of the topic.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use idem_messages::{DeadLetters, StoredLetter, is_header_of_letter};
use rdkafka::consumer::{CommitMode, Consumer as _, StreamConsumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{Message as _, OwnedMessage};
use rdkafka::producer::FutureProducer;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::Error;
use crate::received::{DELIVERED, copy_to, header, id};

/// How long the broker may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

const READ: &str = "read the dead letters";
const REMOVE: &str = "remove a dead letter";

/// The dead letters of a topic.
pub struct Letters {
    consumer: Arc<StreamConsumer>,
    producer: FutureProducer,
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
        // The offset of this group is behind the letters that were handled.
        let group = format!("{}-redrive", config.get("group.id").unwrap_or_default());
        config.set("group.id", group).set("enable.auto.commit", "false").set("enable.partition.eof", "true");
        config.set("auto.offset.reset", "earliest").remove("group.instance.id");
        let opened = spawn_blocking(move || {
            let consumer: StreamConsumer = config.create()?;
            let metadata = consumer.fetch_metadata(Some(&topic), PATIENCE)?;
            let (mut partitions, mut ends) = (TopicPartitionList::new(), HashMap::new());
            for partition in metadata.topics().iter().flat_map(|topic| topic.partitions()) {
                let (_, end) = consumer.fetch_watermarks(&topic, partition.id(), PATIENCE)?;
                partitions.add_partition(&topic, partition.id());
                ends.insert(partition.id(), end);
            }
            // From the committed offsets.
            consumer.assign(&partitions)?;
            let (consumer, kept) = (Arc::new(consumer), HashMap::new());
            Ok::<_, KafkaError>(Self { consumer, producer, ends, kept })
        });
        opened.await.map_err(Error::at(READ))?.map_err(Error::at(READ))
    }
}

impl DeadLetters for Letters {
    type Letter = OwnedMessage;

    async fn next(&mut self) -> Result<Option<OwnedMessage>, Error> {
        while !self.ends.is_empty() {
            let ended = match timeout(PATIENCE, self.consumer.recv()).await.map_err(Error::at(READ))? {
                Ok(letter)
                    if self.ends.get(&letter.partition()).is_some_and(|end| letter.offset() < *end) =>
                {
                    return Ok(Some(letter.detach()));
                }
                Ok(later) => later.partition(),
                Err(KafkaError::PartitionEOF(partition)) => partition,
                Err(error) => return Err(Error::new(READ, error)),
            };
            self.ends.remove(&ended);
        }
        Ok(None)
    }

    fn about(&self, letter: &OwnedMessage) -> StoredLetter {
        StoredLetter::read(id(letter), |name| header(letter, name).map(str::to_owned))
    }

    async fn send(&self, letter: &OwnedMessage, origin: &str) -> Result<(), Error> {
        let is_own = |name: &str| name != DELIVERED && !is_header_of_letter(name);
        copy_to(&self.producer, origin, letter, is_own, &[]).await.map_err(Error::at("send the message back"))
    }

    async fn remove(&mut self, letter: OwnedMessage) -> Result<(), Error> {
        for kept in self.kept.remove(&letter.partition()).unwrap_or_default() {
            copy_to(&self.producer, kept.topic(), &kept, |_| true, &[]).await.map_err(Error::at(REMOVE))?;
        }
        let (consumer, mut done) = (self.consumer.clone(), TopicPartitionList::new());
        let next = Offset::Offset(letter.offset() + 1);
        done.add_partition_offset(letter.topic(), letter.partition(), next).map_err(Error::at(REMOVE))?;
        let committed = spawn_blocking(move || consumer.commit(&done, CommitMode::Sync)).await;
        committed.map_err(Error::at(REMOVE))?.map_err(Error::at(REMOVE))
    }

    async fn keep(&mut self, letter: OwnedMessage) -> Result<(), Error> {
        self.kept.entry(letter.partition()).or_default().push(letter);
        Ok(())
    }
}
