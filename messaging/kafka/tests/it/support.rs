//! A topic with its retry topic and its dead letters.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use idem_broker_tests::{Delivered, Handler, Queue, Settings, kafka};
use idem_kafka::{Received, Source, Summary};
use rdkafka::ClientConfig;
use rdkafka::consumer::BaseConsumer;
use rdkafka::message::{Headers as _, Message as _};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::FutureProducer;

const PARTITIONS: i32 = 4;

pub(crate) struct Orders {
    pub(crate) config: ClientConfig,
    pub(crate) producer: FutureProducer,
    looking: Arc<BaseConsumer>,
    pub(crate) name: &'static str,
    retries: bool,
}

impl Orders {
    /// Creates the topics. With `retries`, the source uses the retry topic.
    pub(crate) async fn open(servers: &str, name: &'static str, retries: bool) -> Self {
        let orders = Self::on(servers, name, retries, "range,roundrobin");
        kafka::create(&orders.config, name, PARTITIONS).await.unwrap();
        orders
    }

    /// The topics on librdkafka's mock broker, which lives as long as the first returned value.
    pub(crate) fn mocked(
        name: &'static str,
        retries: bool,
        assignors: &str,
        partitions: i32,
    ) -> (impl Sized, Self) {
        let cluster = MockCluster::new(1).unwrap();
        for topic in [name.to_owned(), format!("{name}-retry"), format!("{name}-dead")] {
            cluster.create_topic(&topic, partitions, 1).unwrap();
        }
        let orders = Self::on(&cluster.bootstrap_servers(), name, retries, assignors);
        (cluster, orders)
    }

    /// As `open`, for topics that exist already.
    pub(crate) fn on(servers: &str, name: &'static str, retries: bool, assignors: &str) -> Self {
        let (mut config, producer) = kafka::clients(servers, &format!("{name}-shippers")).unwrap();
        config.set("partition.assignment.strategy", assignors);
        let looking = Arc::new(config.create().unwrap());
        Self { config, producer, looking, name, retries }
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
        kafka::send(&self.producer, self.name, body).await.unwrap();
    }

    async fn work(&self, shutdown: BoxFuture<'static, ()>, settings: Settings, handler: Handler) -> Summary {
        self.source().run_until(shutdown, settings, |order| handler(delivered(order))).await.unwrap()
    }

    async fn left(&self) -> Option<u64> {
        kafka::left(&self.looking, self.name, PARTITIONS).await.ok()
    }
}
