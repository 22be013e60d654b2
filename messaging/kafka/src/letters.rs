//! The dead letters of a topic, and how their messages go back.
//!
//! Kafka cannot remove a single record. So a redrive commits an offset in a separate group, and all letters
//! before that offset count as sent back. If a redrive keeps a letter and sends back a later letter, it
//! copies the kept letter to the end of the topic.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use idem_messages::{Redrive, StoredLetter, is_header_of_letter};
use rdkafka::consumer::{CommitMode, Consumer as _, StreamConsumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{Message as _, OwnedMessage};
use rdkafka::producer::FutureProducer;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::Error;
use crate::received::{copy_to, header, id};

/// How long the broker may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

const READ: &str = "read the dead letters";

/// The partitions that are not read completely, each with its end offset at the start of the redrive.
type Ends = HashMap<i32, i64>;

pub(crate) async fn redrive(
    config: ClientConfig,
    producer: FutureProducer,
    topic: String,
    redrive: &mut Redrive,
) -> Result<(), Error> {
    let opened = spawn_blocking(move || open(config, &topic)).await.map_err(Error::at(READ))?;
    let (consumer, mut ends) = opened.map_err(Error::at(READ))?;
    // For each partition, the kept letters after the last letter that was sent back.
    let mut kept: HashMap<i32, Vec<OwnedMessage>> = HashMap::new();
    while let Some(letter) = next(&consumer, &mut ends).await? {
        let about = StoredLetter::read(id(&letter), |name| header(&letter, name).map(str::to_owned));
        let send = |origin: String| {
            let (producer, letter) = (&producer, &letter);
            let is_own = |name: &str| !is_header_of_letter(name);
            async move {
                copy_to(producer, &origin, letter, is_own, &[])
                    .await
                    .map_err(Error::at("send the message back"))
            }
        };
        if !redrive.sends(about, send).await? {
            kept.entry(letter.partition()).or_default().push(letter);
            continue;
        }
        let doing = "remove a dead letter";
        for kept in kept.remove(&letter.partition()).unwrap_or_default() {
            copy_to(&producer, kept.topic(), &kept, |_| true, &[]).await.map_err(Error::at(doing))?;
        }
        let (consumer, mut done) = (consumer.clone(), TopicPartitionList::new());
        let offset = Offset::Offset(letter.offset() + 1);
        done.add_partition_offset(letter.topic(), letter.partition(), offset).map_err(Error::at(doing))?;
        let committed = spawn_blocking(move || consumer.commit(&done, CommitMode::Sync)).await;
        committed.map_err(Error::at(doing))?.map_err(Error::at(doing))?;
    }
    Ok(())
}

fn open(mut config: ClientConfig, topic: &str) -> Result<(Arc<StreamConsumer>, Ends), KafkaError> {
    // The committed offset of this group is just after the last letter that was sent back.
    let group = format!("{}-redrive", config.get("group.id").unwrap_or_default());
    config.set("group.id", group).set("enable.auto.commit", "false").set("enable.partition.eof", "true");
    config.set("auto.offset.reset", "earliest").remove("group.instance.id");
    let consumer: StreamConsumer = config.create()?;
    let metadata = consumer.fetch_metadata(Some(topic), PATIENCE)?;
    let (mut partitions, mut ends) = (TopicPartitionList::new(), Ends::new());
    for partition in metadata.topics().iter().flat_map(|topic| topic.partitions()) {
        let (_, end) = consumer.fetch_watermarks(topic, partition.id(), PATIENCE)?;
        partitions.add_partition(topic, partition.id());
        ends.insert(partition.id(), end);
    }
    // The consumer starts from the committed offsets.
    consumer.assign(&partitions)?;
    Ok((Arc::new(consumer), ends))
}

async fn next(consumer: &StreamConsumer, ends: &mut Ends) -> Result<Option<OwnedMessage>, Error> {
    while !ends.is_empty() {
        let ended = match timeout(PATIENCE, consumer.recv()).await.map_err(Error::at(READ))? {
            Ok(letter) if ends.get(&letter.partition()).is_some_and(|end| letter.offset() < *end) => {
                return Ok(Some(letter.detach()));
            }
            Ok(later) => later.partition(),
            Err(KafkaError::PartitionEOF(partition)) => partition,
            Err(error) => return Err(Error::new(READ, error)),
        };
        ends.remove(&ended);
    }
    Ok(None)
}
