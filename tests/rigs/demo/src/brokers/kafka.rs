//! The broker of the demo: sets up the topics, and counts their messages.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use idem::message::StoredLetter;
use idem_kafka::{Received, Source};
use idem_test_servers::Kafka;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{ClientConfig, Message as _, Offset, TopicPartitionList};

use crate::shop::consumer;
use crate::{Broker, Failure, Kind, Order, Setup, Shop};

/// How long Kafka keeps a message. The `ttl` of [`ship`](crate::ship) is longer, also for a message that waits in
/// the retry topic.
const RETENTION: Duration = Duration::from_secs(3 * 24 * 60 * 60);

/// How long a worker may be silent before it loses its partitions.
const SESSION: Duration = Duration::from_secs(6);

const PATIENCE: Duration = Duration::from_secs(10);

const ORDERS: &str = "orders";
const RETRIES: &str = "orders-retry";
const DEAD_LETTERS: &str = "orders-dead";
const PARTITIONS: i32 = 6;

/// A broker that the demo starts.
pub struct OnKafka {
    server: Kafka,
    producer: FutureProducer,
    /// Reads offsets, and does not join the group.
    looking: Arc<BaseConsumer>,
}

fn group(servers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", servers)
        .set("group.id", "shippers")
        .set("auto.offset.reset", "earliest")
        .set("session.timeout.ms", SESSION.as_millis().to_string());
    config
}

/// A producer without batches: the demo's broker returns the start of the last batch as the end of a partition.
fn producer(servers: &str) -> Result<FutureProducer, Failure> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", servers).set("acks", "all").set("batch.num.messages", "1");
    Ok(config.set("message.timeout.ms", "30000").create()?)
}

fn source(servers: &str) -> Result<Source, Failure> {
    let source = Source::new(group(servers), [ORDERS], DEAD_LETTERS).retry_topic(RETRIES);
    Ok(source.producer(producer(servers)?))
}

async fn create_topics(servers: &str) -> Result<(), Failure> {
    let admin: AdminClient<DefaultClientContext> = group(servers).create()?;
    let retention = RETENTION.as_millis().to_string();
    let topics = [ORDERS, RETRIES, DEAD_LETTERS].map(|name| {
        NewTopic::new(name, PARTITIONS, TopicReplication::Fixed(1)).set("retention.ms", &retention)
    });
    let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
    for created in admin.create_topics(&topics, &options).await? {
        created.map_err(|(topic, error)| format!("the topic {topic}: {error}"))?;
    }
    Ok(())
}

impl Broker for OnKafka {
    const KIND: Kind = Kind::Kafka;

    /// The partitions of a killed worker go to others only after six seconds. A group with another kill in that time would never work.
    const KILL_EVERY_MS: u64 = 9_000;

    async fn start(setup: &Setup) -> Result<Self, Failure> {
        let server = if setup.survives { Kafka::persistent() } else { Kafka::start() };
        create_topics(&server.servers()).await?;
        let (producer, looking) = (producer(&server.servers())?, group(&server.servers()).create()?);
        Ok(Self { producer, looking: Arc::new(looking), server })
    }

    fn kill(&mut self) {
        self.server.server().kill();
    }

    async fn restart(&mut self) -> Result<(), Failure> {
        self.server.server().restart();
        Ok(())
    }

    fn address(&self) -> String {
        self.server.servers()
    }

    async fn work(address: &str, shop: &Shop, shutdown: impl Future<Output = ()>) -> Result<(), Failure> {
        let consumer = consumer().redelivery_horizon(RETENTION);
        let handler = |message: &Received| shop.handle(Order::parse(message.payload().unwrap_or_default()));
        source(address)?.run_until(shutdown, consumer, handler).await?;
        Ok(())
    }

    async fn send(&self, bodies: Vec<Vec<u8>>) -> Result<(), Failure> {
        // Different keys spread duplicates over the partitions, and so over the workers.
        let sends = stream::iter(bodies.iter().enumerate()).map(|(number, body)| async move {
            let key = number.to_string();
            let sent = self.producer.send(FutureRecord::to(ORDERS).payload(body).key(&key), PATIENCE).await;
            sent.map(drop).map_err(|(error, _)| error)
        });
        Ok(sends.buffered(256).try_collect().await?)
    }

    async fn waiting(&self) -> Result<u64, Failure> {
        let looking = self.looking.clone();
        // The messages that the group has not committed.
        let count = move || {
            let mut list = TopicPartitionList::new();
            [ORDERS, RETRIES].iter().for_each(|name| list.add_partition_range(name, 0, PARTITIONS - 1));
            let mut waiting = 0;
            for element in looking.committed_offsets(list, PATIENCE)?.elements() {
                let (first, end) =
                    looking.fetch_watermarks(element.topic(), element.partition(), PATIENCE)?;
                let next = if let Offset::Offset(next) = element.offset() { next } else { first };
                waiting += u64::try_from(end - next)?;
            }
            Ok(waiting)
        };
        tokio::task::spawn_blocking(count).await?
    }

    async fn dead_letters(&self) -> Result<Vec<StoredLetter>, Failure> {
        Ok(source(&self.server.servers())?.dead_letters().await?)
    }
}
