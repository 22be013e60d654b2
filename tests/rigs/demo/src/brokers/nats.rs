//! NATS JetStream as the broker of the demo: sets up the streams, and counts their messages.

use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::pull;
use idem::message::StoredLetter;
use idem_broker_tests::nats::{left, open, send};
use idem_nats::{Received, Source};
use idem_test_servers::Nats;

use crate::shop::consumer;
use crate::{Broker, Failure, Kind, Order, Setup, Shop};

/// How long JetStream waits for a silent worker before it delivers the worker's message to another worker.
const ACK_WAIT: Duration = Duration::from_secs(2);

const ORDERS: &str = "orders";
const DEAD_LETTERS: &str = "orders-dead";

/// A NATS server that the demo starts.
pub struct OnNats {
    server: Nats,
    jetstream: Context,
}

async fn connect(url: &str) -> Result<(Context, Source), Failure> {
    // The streams keep a message for seven days. The `ttl` of [`ship`](crate::ship) is not shorter.
    let settings = pull::Config { ack_wait: ACK_WAIT, ..pull::Config::default() };
    let (jetstream, consumer) = open(url, ORDERS, settings).await?;
    let source = Source::new(jetstream.clone(), consumer, DEAD_LETTERS);
    Ok((jetstream, source))
}

impl Broker for OnNats {
    const KIND: Kind = Kind::Nats;

    async fn start(_: &Setup) -> Result<Self, Failure> {
        let server = Nats::start();
        let (jetstream, _) = connect(&server.url()).await?;
        Ok(Self { server, jetstream })
    }

    fn kill(&mut self) {
        self.server.server().kill();
    }

    async fn restart(&mut self) -> Result<(), Failure> {
        self.server.server().restart();
        self.jetstream = connect(&self.server.url()).await?.0;
        Ok(())
    }

    fn address(&self) -> String {
        self.server.url()
    }

    async fn work(address: &str, shop: &Shop, shutdown: impl Future<Output = ()>) -> Result<(), Failure> {
        let (_, source) = connect(address).await?;
        let handler = |message: &Received| shop.handle(Order::parse(&message.payload));
        source.run_until(shutdown, consumer(), handler).await?;
        Ok(())
    }

    async fn send(&self, bodies: Vec<String>) -> Result<(), Failure> {
        for body in bodies {
            send(&self.jetstream, ORDERS, &body).await?;
        }
        Ok(())
    }

    async fn waiting(&self) -> Result<u64, Failure> {
        left(&self.jetstream, ORDERS).await
    }

    async fn dead_letters(&self) -> Result<Vec<StoredLetter>, Failure> {
        Ok(connect(&self.server.url()).await?.1.dead_letters().await?)
    }
}
