//! A topic of Kafka, the topic `NAME-retry` for its retries, and the topic `NAME-dead` for its dead letters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaResult;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use crate::Failure;

/// How long a topic keeps a message.
pub const RETENTION: Duration = Duration::from_secs(3 * 24 * 60 * 60);

const PATIENCE: Duration = Duration::from_secs(10);

static SENT: AtomicU64 = AtomicU64::new(0);

/// The settings of a consumer in this group, and a producer. A worker that is silent for six seconds loses
/// its partitions. The test broker reports the start of the last batch as the end of a partition, so this
/// producer puts one message in each batch.
pub fn clients(servers: &str, group: &str) -> KafkaResult<(ClientConfig, FutureProducer)> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", servers);
    let mut producing = config.clone();
    producing.set("acks", "all").set("batch.num.messages", "1").set("message.timeout.ms", "30000");
    config.set("group.id", group).set("auto.offset.reset", "earliest").set("session.timeout.ms", "6000");
    Ok((config, producing.create()?))
}

/// Creates the three topics.
pub async fn create(config: &ClientConfig, name: &str, partitions: i32) -> Result<(), Failure> {
    let admin: AdminClient<DefaultClientContext> = config.create()?;
    let retention = RETENTION.as_millis().to_string();
    let names = ["", "-retry", "-dead"].map(|end| format!("{name}{end}"));
    let topics = names.each_ref().map(|name| {
        NewTopic::new(name, partitions, TopicReplication::Fixed(1)).set("retention.ms", &retention)
    });
    let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
    for created in admin.create_topics(&topics, &options).await? {
        created.map_err(|(topic, error)| format!("the topic {topic}: {error}"))?;
    }
    Ok(())
}

/// Sends a message, with the header `Trace` whose value is `t-` followed by the body.
pub async fn send(producer: &FutureProducer, name: &str, body: &str) -> KafkaResult<()> {
    let trace = format!("t-{body}");
    let headers = OwnedHeaders::new().insert(Header { key: "Trace", value: Some(&trace) });
    // Different keys spread duplicates over the partitions, and so over the workers.
    let key = SENT.fetch_add(1, Ordering::Relaxed).to_string();
    let record = FutureRecord::to(name).payload(body).key(&key).headers(headers);
    producer.send(record, PATIENCE).await.map(drop).map_err(|(error, _)| error)
}

/// How many messages of the topic and of its retry topic the group has not committed. `looking` has the
/// settings of the group, but does not join the group.
pub async fn left(looking: &Arc<BaseConsumer>, name: &str, partitions: i32) -> Result<u64, Failure> {
    let (looking, topics) = (looking.clone(), [name.to_owned(), format!("{name}-retry")]);
    let count = move || {
        let mut list = TopicPartitionList::new();
        topics.iter().for_each(|topic| list.add_partition_range(topic, 0, partitions - 1));
        let mut messages = 0;
        for element in looking.committed_offsets(list, PATIENCE)?.elements() {
            let (first, end) = looking.fetch_watermarks(element.topic(), element.partition(), PATIENCE)?;
            let next = if let Offset::Offset(next) = element.offset() { next } else { first };
            messages += u64::try_from(end - next)?;
        }
        Ok(messages)
    };
    tokio::task::spawn_blocking(count).await?
}
