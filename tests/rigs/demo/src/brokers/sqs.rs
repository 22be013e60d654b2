//! SQS as the broker of the demo: sets up the queues, and counts their messages.

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::SendMessageBatchRequestEntry;
use idem::message::StoredLetter;
use idem_broker_tests::sqs::{self, left};
use idem_sqs::{Received, Source};
use idem_test_servers::Aws;

use super::lambda;
use crate::shop::consumer;
use crate::{Broker, Failure, Kind, Order, Setup, Shop};

/// How long SQS waits for a silent worker before it delivers the worker's message to another worker, in
/// seconds.
const VISIBILITY: &str = "3";

/// An emulator of SQS that the demo starts.
pub type OnSqs = Emulator<false>;

/// As [`OnSqs`], but the workers pass the messages to a function, as AWS Lambda does.
pub type OnLambda = Emulator<true>;

/// An emulator of SQS, with or without functions of Lambda.
pub struct Emulator<const LAMBDA: bool> {
    server: Aws,
    client: Client,
    orders: String,
    dead_letters: String,
}

/// The client, and the queues' URLs. Creates the queues where they are missing.
pub(super) async fn open(endpoint: &str) -> Result<(Client, String, String), Failure> {
    sqs::open(endpoint, "orders", "", [VISIBILITY; 2]).await
}

impl<const LAMBDA: bool> Broker for Emulator<LAMBDA> {
    const KIND: Kind = if LAMBDA { Kind::Lambda } else { Kind::Sqs };

    const STORE: &'static str = if LAMBDA { "dynamodb" } else { "redis" };

    async fn start(_: &Setup) -> Result<Self, Failure> {
        let server = Aws::start();
        let (client, orders, dead_letters) = open(&server.url()).await?;
        Ok(Self { server, client, orders, dead_letters })
    }

    fn kill(&mut self) {
        self.server.server().signal("-STOP");
    }

    async fn restart(&mut self) -> Result<(), Failure> {
        self.server.server().signal("-CONT");
        Ok(())
    }

    fn address(&self) -> String {
        self.server.url()
    }

    async fn work(address: &str, shop: &Shop, shutdown: impl Future<Output = ()>) -> Result<(), Failure> {
        if LAMBDA {
            return lambda::work(address, shop, shutdown).await;
        }
        let (client, orders, dead_letters) = open(address).await?;
        let source = Source::new(client, orders, dead_letters);
        let handler =
            |message: &Received| shop.handle(Order::parse(message.body().unwrap_or_default().as_bytes()));
        source.run_until(shutdown, consumer(), handler).await?;
        Ok(())
    }

    async fn send(&self, bodies: Vec<String>) -> Result<(), Failure> {
        for bodies in bodies.chunks(10) {
            let mut batch = self.client.send_message_batch().queue_url(&self.orders);
            for (number, body) in bodies.iter().enumerate() {
                let entry = SendMessageBatchRequestEntry::builder().id(number.to_string());
                batch = batch.entries(entry.message_body(body).build()?);
            }
            batch.send().await?;
        }
        Ok(())
    }

    async fn waiting(&self) -> Result<u64, Failure> {
        left(&self.client, &self.orders).await
    }

    async fn dead_letters(&self) -> Result<Vec<StoredLetter>, Failure> {
        let source = Source::new(self.client.clone(), &self.orders, &self.dead_letters);
        Ok(source.dead_letters().await?)
    }
}
