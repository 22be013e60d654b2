//! What the demo asks of the broker.

use idem::message::Summary;
use idem_test_servers::Nats;
use worker_demo::{Broker, Failure, Shop};

use crate::{CONCURRENCY, Queue, work};

/// A NATS server of the demo's own.
#[derive(Debug)]
pub struct OnNats {
    server: Nats,
    queue: Queue,
}

impl Broker for OnNats {
    const CONCURRENCY: usize = CONCURRENCY;

    async fn start() -> Result<Self, Failure> {
        let server = Nats::start();
        let queue = Queue::open(&server.url()).await?;
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
        work(&Queue::open(address).await?, shop, shutdown).await
    }

    async fn send(&self, bodies: Vec<Vec<u8>>) -> Result<(), Failure> {
        for (number, body) in bodies.into_iter().enumerate() {
            // An id of its own each: the broker's own deduplication has nothing to do with it.
            self.queue.send(&format!("message-{number}"), body).await?;
        }
        Ok(())
    }

    async fn waiting(&self) -> Result<u64, Failure> {
        self.queue.waiting().await
    }

    async fn dead_letters(&self) -> Result<u64, Failure> {
        self.queue.dead_letters().await
    }
}
