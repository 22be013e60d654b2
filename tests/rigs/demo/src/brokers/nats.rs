//! The broker of the demo: sets up the streams, and counts their messages.

use std::time::Duration;

use async_nats::jetstream::consumer::{PullConsumer, pull};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{self, RetentionPolicy};
use async_nats::jetstream::{self, Context};
use idem::message::StoredLetter;
use idem_nats::{Received, Source};
use idem_test_servers::Nats;

use crate::shop::consumer;
use crate::{Broker, Failure, Kind, Order, Setup, Shop};

/// How long JetStream waits for a silent worker before it delivers its message to another one.
const ACK_WAIT: Duration = Duration::from_secs(2);

/// How long JetStream keeps a message. The `ttl` of [`ship`](crate::ship) is not shorter.
const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

const ORDERS: &str = "orders";
const DEAD_LETTERS: &str = "orders-dead";

/// A NATS server that the demo starts.
#[derive(Debug)]
pub struct OnNats {
    server: Nats,
    jetstream: Context,
}

/// Connects, and creates the streams and the consumer where they are missing.
async fn open(url: &str) -> Result<(Context, PullConsumer), Failure> {
    let jetstream = jetstream::new(async_nats::connect(url).await?);
    let dead = stream::Config { name: DEAD_LETTERS.to_owned(), ..stream::Config::default() };
    jetstream.get_or_create_stream(dead).await?;
    let orders = stream::Config {
        name: ORDERS.to_owned(),
        retention: RetentionPolicy::WorkQueue,
        max_age: MAX_AGE,
        ..stream::Config::default()
    };
    let orders = jetstream.get_or_create_stream(orders).await?;
    let durable_name = Some("shippers".to_owned());
    let shippers = pull::Config { durable_name, ack_wait: ACK_WAIT, ..pull::Config::default() };
    let consumer = orders.get_or_create_consumer("shippers", shippers).await?;
    Ok((jetstream, consumer))
}

async fn source(url: &str) -> Result<Source, Failure> {
    let (jetstream, consumer) = open(url).await?;
    Ok(Source::new(jetstream, consumer, DEAD_LETTERS))
}

impl Broker for OnNats {
    const KIND: Kind = Kind::Nats;

    async fn start(_: &Setup) -> Result<Self, Failure> {
        let server = Nats::start();
        let (jetstream, _) = open(&server.url()).await?;
        Ok(Self { server, jetstream })
    }

    fn kill(&mut self) {
        self.server.server().kill();
    }

    async fn restart(&mut self) -> Result<(), Failure> {
        self.server.server().restart();
        self.jetstream = open(&self.server.url()).await?.0;
        Ok(())
    }

    fn address(&self) -> String {
        self.server.url()
    }

    async fn work(address: &str, shop: &Shop, shutdown: impl Future<Output = ()>) -> Result<(), Failure> {
        let source = source(address).await?;
        let handler = |message: &Received| shop.handle(Order::parse(&message.payload));
        source.run_until(shutdown, consumer(), handler).await?;
        Ok(())
    }

    async fn send(&self, bodies: Vec<Vec<u8>>) -> Result<(), Failure> {
        for (number, body) in bodies.into_iter().enumerate() {
            // Each message has an id of its own, so that the broker drops no duplicate.
            let message =
                PublishMessage::build().message_id(format!("message-{number}")).payload(body.into());
            self.jetstream.send_publish(ORDERS, message).await?.await?;
        }
        Ok(())
    }

    async fn waiting(&self) -> Result<u64, Failure> {
        Ok(self.jetstream.get_stream(ORDERS).await?.info().await?.state.messages)
    }

    async fn dead_letters(&self) -> Result<Vec<StoredLetter>, Failure> {
        Ok(source(&self.server.url()).await?.dead_letters().await?)
    }
}
