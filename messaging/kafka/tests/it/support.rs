//! A topic with its retry topic and its dead letters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use idem_broker_tests::{Delivered, Handler, Queue, Settings};
use idem_kafka::{Received, Source, Summary};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Header, Headers as _, Message as _, OwnedHeaders};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

const PARTITIONS: i32 = 4;

const PATIENCE: Duration = Duration::from_secs(10);

static SENT: AtomicU64 = AtomicU64::new(0);

pub(crate) struct Orders {
    pub(crate) config: ClientConfig,
    admin: AdminClient<DefaultClientContext>,
    pub(crate) producer: FutureProducer,
    looking: Arc<BaseConsumer>,
    pub(crate) name: &'static str,
    retries: bool,
}

impl Orders {
    pub(crate) async fn open(servers: &str, name: &'static str) -> Self {
        Self::with(servers, name, false).await
    }

    /// Creates the topics, with or without a retry topic.
    pub(crate) async fn with(servers: &str, name: &'static str, retries: bool) -> Self {
        let orders = Self::on(servers, name, retries, "range,roundrobin");
        for topic in [name.to_owned(), format!("{name}-retry"), format!("{name}-dead")] {
            orders.create(&topic).await;
        }
        orders
    }

    /// The topics on librdkafka's mock broker, which lives as long as the first value.
    pub(crate) fn mocked(
        name: &'static str,
        retries: bool,
        assignors: &str,
        partitions: i32,
    ) -> (impl Sized, Self) {
        let kafka = MockCluster::new(1).unwrap();
        for topic in [name.to_owned(), format!("{name}-retry"), format!("{name}-dead")] {
            kafka.create_topic(&topic, partitions, 1).unwrap();
        }
        let orders = Self::on(&kafka.bootstrap_servers(), name, retries, assignors);
        (kafka, orders)
    }

    /// For topics that exist already.
    pub(crate) fn on(servers: &str, name: &'static str, retries: bool, assignors: &str) -> Self {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", servers);
        let admin: AdminClient<_> = config.create().unwrap();
        let mut producing = config.clone();
        // The test broker returns the start of the last batch as the end of a partition, so this producer
        // puts one message in each batch.
        producing.set("acks", "all").set("batch.num.messages", "1");
        config
            .set("group.id", format!("{name}-shippers"))
            .set("auto.offset.reset", "earliest")
            .set("session.timeout.ms", "6000")
            .set("partition.assignment.strategy", assignors);
        let (looking, producer) = (Arc::new(config.create().unwrap()), producing.create().unwrap());
        Self { config, admin, producer, looking, name, retries }
    }

    async fn create(&self, topic: &str) {
        let topic = NewTopic::new(topic, PARTITIONS, TopicReplication::Fixed(1));
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        for created in self.admin.create_topics([&topic], &options).await.unwrap() {
            created.unwrap();
        }
    }

    /// How many messages of these topics the group has not committed.
    async fn not_committed(&self, topics: Vec<String>) -> Option<u64> {
        let looking = self.looking.clone();
        let count = move || {
            let mut list = TopicPartitionList::new();
            topics.iter().for_each(|topic| list.add_partition_range(topic, 0, PARTITIONS - 1));
            let committed = looking.committed_offsets(list, PATIENCE).ok()?;
            let mut left = 0;
            for element in committed.elements() {
                let (first, end) =
                    looking.fetch_watermarks(element.topic(), element.partition(), PATIENCE).ok()?;
                let next = if let Offset::Offset(next) = element.offset() { next } else { first };
                left += u64::try_from(end - next).ok()?;
            }
            Some(left)
        };
        tokio::task::spawn_blocking(count).await.unwrap()
    }
}

pub(crate) fn delivered(order: &Received) -> Delivered {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let trace =
        order.headers().and_then(|headers| headers.iter().find(|header| header.key == "Trace")?.value);
    Delivered { body: text(order.payload().unwrap()), trace: trace.map(text), deliveries: 1 }
}

impl Queue for Orders {
    type Source = Source;

    fn source(&self) -> Source {
        let dead = format!("{}-dead", self.name);
        let source = Source::new(self.config.clone(), [self.name], dead).producer(self.producer.clone());
        if self.retries { source.retry_topic(format!("{}-retry", self.name)) } else { source }
    }

    async fn send(&self, body: &str) {
        let trace = format!("t-{body}");
        let headers = OwnedHeaders::new().insert(Header { key: "Trace", value: Some(&trace) });
        // Different keys spread duplicates over the partitions.
        let key = SENT.fetch_add(1, Ordering::Relaxed).to_string();
        let record = FutureRecord::to(self.name).payload(body).key(&key).headers(headers);
        self.producer.send(record, PATIENCE).await.unwrap();
    }

    async fn work(&self, shutdown: BoxFuture<'static, ()>, settings: Settings, handler: Handler) -> Summary {
        self.source().run_until(shutdown, settings, |order| handler(delivered(order))).await.unwrap()
    }

    async fn left(&self) -> Option<u64> {
        self.not_committed(vec![self.name.to_owned(), format!("{}-retry", self.name)]).await
    }
}
