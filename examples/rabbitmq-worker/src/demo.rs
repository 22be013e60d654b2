//! What the demo asks of the broker.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use idem::message::Summary;
use idem_test_servers::RabbitMq;
use worker_demo::{Broker, Failure, Shop};

use crate::queue::Queue;
use crate::{CONCURRENCY, work};

const ORDERS: &str = "orders";

/// A RabbitMQ node of the demo's own.
#[derive(Debug)]
pub struct OnRabbitMq {
    server: RabbitMq,
    queue: Queue,
}

impl Broker for OnRabbitMq {
    const CONCURRENCY: usize = CONCURRENCY as usize;

    async fn start() -> Result<Self, Failure> {
        let server = RabbitMq::start();
        let queue = Queue::open(&server.url(), ORDERS).await?;
        Ok(Self { server, queue })
    }

    fn address(&self) -> String {
        self.server.url()
    }

    async fn work(
        address: &str,
        shop: &Shop,
        shutdown: impl Future<Output = ()>,
    ) -> Result<Summary, Failure> {
        Ok(work(address, ORDERS, shop, shutdown).await)
    }

    async fn send(&self, bodies: Vec<Vec<u8>>) -> Result<(), Failure> {
        // Many confirmations at a time, in the order of sending.
        let sends = stream::iter(&bodies).map(|body| self.queue.send(body));
        sends.buffered(256).try_collect().await
    }

    async fn waiting(&self) -> Result<u64, Failure> {
        match self.queue.waiting().await? {
            // Some may be with a worker, of which RabbitMQ tells its own tool only; and one may be on its way
            // from one queue to another.
            0 => Ok(self.server.messages(ORDERS).max(self.server.messages(ORDERS))),
            ready => Ok(ready),
        }
    }

    async fn dead_letters(&self) -> Result<u64, Failure> {
        self.queue.dead_letters().await
    }
}
