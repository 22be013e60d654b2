//! Kafka as the broker of the demo: sets up the topics, and counts their messages.

use std::sync::Arc;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use idem::message::StoredLetter;
use idem_broker_tests::kafka::{RETENTION, clients, create, left, send};
use idem_kafka::{Received, Source};
use idem_test_servers::Kafka;
use rdkafka::Message as _;
use rdkafka::consumer::BaseConsumer;
use rdkafka::producer::FutureProducer;

use crate::shop::consumer;
use crate::{Broker, Failure, Kind, Order, Setup, Shop};

const ORDERS: &str = "orders";
const DEAD_LETTERS: &str = "orders-dead";
const PARTITIONS: i32 = 6;

/// The group of the workers.
const GROUP: &str = "shippers";

/// A broker that the demo starts.
pub struct OnKafka {
    server: Kafka,
    producer: FutureProducer,
    /// Reads offsets, and does not join the group.
    looking: Arc<BaseConsumer>,
}

fn source(servers: &str) -> Result<Source, Failure> {
    let (group, producer) = clients(servers, GROUP)?;
    Ok(Source::new(group, [ORDERS], DEAD_LETTERS).retry_topic("orders-retry").producer(producer))
}

impl Broker for OnKafka {
    const KIND: Kind = Kind::Kafka;

    /// The partitions of a killed worker go to other workers only after six seconds. If the demo killed
    /// workers more often than that, the group would never handle a message.
    const KILL_EVERY_MS: u64 = 9_000;

    async fn start(setup: &Setup) -> Result<Self, Failure> {
        let server = if setup.survives { Kafka::persistent() } else { Kafka::start() };
        let (group, producer) = clients(&server.servers(), GROUP)?;
        create(&group, ORDERS, PARTITIONS).await?;
        Ok(Self { server, producer, looking: Arc::new(group.create()?) })
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
        // A message can stay in the topic of the orders for `RETENTION`, and then as long in the topic of the
        // retries. The `ttl` of [`ship`](crate::ship) is longer than both times together.
        let consumer = consumer().redelivery_horizon(RETENTION);
        let handler = |message: &Received| shop.handle(Order::parse(message.payload().unwrap_or_default()));
        source(address)?.run_until(shutdown, consumer, handler).await?;
        Ok(())
    }

    async fn send(&self, bodies: Vec<String>) -> Result<(), Failure> {
        let sends = stream::iter(&bodies).map(|body| send(&self.producer, ORDERS, body));
        Ok(sends.buffered(256).try_collect().await?)
    }

    async fn waiting(&self) -> Result<u64, Failure> {
        left(&self.looking, ORDERS, PARTITIONS).await
    }

    async fn dead_letters(&self) -> Result<Vec<StoredLetter>, Failure> {
        Ok(source(&self.server.servers())?.dead_letters().await?)
    }
}
