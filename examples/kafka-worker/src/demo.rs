//! What the demo asks of the broker.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use idem::message::Summary;
use idem_test_servers::Kafka;
use worker_demo::{Broker, Failure, Shop};

use crate::topics::Topics;
use crate::{CONCURRENCY, work};

const ORDERS: &str = "orders";
const PARTITIONS: i32 = 6;

/// A broker of the demo's own.
pub struct OnKafka {
    server: Kafka,
    topics: Topics,
}

impl Broker for OnKafka {
    const CONCURRENCY: usize = CONCURRENCY;

    /// The partitions of a killed worker are given to others only after six seconds, in which a group that is to
    /// change again stands still.
    const KILL_EVERY_MS: u64 = 9_000;

    async fn start() -> Result<Self, Failure> {
        let server = Kafka::start();
        let topics = Topics::open(&server.servers(), ORDERS, PARTITIONS).await?;
        Ok(Self { server, topics })
    }

    fn address(&self) -> String {
        self.server.servers()
    }

    async fn work(
        address: &str,
        shop: &Shop,
        shutdown: impl Future<Output = ()>,
    ) -> Result<Summary, Failure> {
        work(&Topics::open(address, ORDERS, PARTITIONS).await?, shop, shutdown).await
    }

    async fn send(&self, bodies: Vec<Vec<u8>>) -> Result<(), Failure> {
        // Keys that differ spread duplicates over the partitions, and so over the workers.
        let sends = stream::iter(bodies.iter().enumerate())
            .map(|(number, body)| async move { self.topics.send(&number.to_string(), body).await });
        sends.buffered(256).try_collect().await
    }

    async fn waiting(&self) -> Result<u64, Failure> {
        self.topics.waiting().await
    }

    async fn dead_letters(&self) -> Result<u64, Failure> {
        self.topics.dead_letters().await
    }
}
