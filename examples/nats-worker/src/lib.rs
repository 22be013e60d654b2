//! Ships orders from a JetStream stream: the idempotent function [`ship`], and the glue between JetStream
//! and [`idem::message`].

mod demo;
mod taking;

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{self, RetentionPolicy};
use async_nats::jetstream::{self, AckKind, Context};
use futures_util::StreamExt as _;
use idem::idempotent;
use idem::message::{Consumer, Delivery, Dispose as _, Reason, Summary};
use worker_demo::{Failure, Order, ShipError, Shipment, Shop};

pub use demo::OnNats;
use taking::Taking;

/// How many orders a worker ships at a time.
pub const CONCURRENCY: usize = 10;

/// How long JetStream waits for a word of a worker that has a message, before another one gets it.
const ACK_WAIT: Duration = Duration::from_secs(2);

/// How long JetStream keeps a message. The `ttl` of [`ship`] is not shorter.
const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

const ORDERS: &str = "orders";
const DEAD_LETTERS: &str = "orders-dead";

/// Ships an order, once.
///
/// # Errors
///
/// [`ShipError`].
#[idempotent(
    key = "order/{order.id}",
    scope = "orders.ship",
    fingerprint = order.pieces,
    store = shop.store,
    ttl = "7d",
    lease = shop.lease,
    terminal = ShipError::is_final
)]
pub async fn ship(shop: &Shop, order: &Order) -> Result<Shipment, ShipError> {
    shop.pack(order).await
}

/// Ships the orders of a queue until `shutdown` ends, and what is begun is finished.
///
/// # Errors
///
/// The queue cannot be read.
pub async fn work(
    queue: &Queue,
    shop: &Shop,
    shutdown: impl Future<Output = ()>,
) -> Result<Summary, Failure> {
    let mut taking = Taking::new(queue);
    let summary = Consumer::new()
        .concurrency(CONCURRENCY)
        .extend_every(ACK_WAIT / 3)
        .redelivery_horizon(MAX_AGE)
        .dispose(ShipError::disposition)
        .run_until(shutdown, taking.messages(), |message| handle(shop, message.order()))
        .await;
    taking.give_back().await?;
    queue.jetstream.client().flush().await?;
    Ok(summary)
}

async fn handle(shop: &Shop, order: Result<Order, ShipError>) -> Result<Shipment, ShipError> {
    shop.ledger.add("deliveries", "1").map_err(|error| ShipError::Effect(error.to_string()))?;
    let order = order?;
    if shop.is_transactional() {
        shop.answered(&order, shop.ship_in_transaction(&order)).await
    } else {
        shop.answered(&order, ship(shop, &order)).await
    }
}

/// A message, and what it takes to set it aside.
#[derive(Debug)]
pub struct OrderMessage {
    message: jetstream::Message,
    jetstream: Context,
}

impl OrderMessage {
    /// The order in it.
    ///
    /// # Errors
    ///
    /// [`ShipError::NoOrder`].
    pub fn order(&self) -> Result<Order, ShipError> {
        Order::parse(&self.message.payload)
    }
}

impl Delivery for OrderMessage {
    type Error = Failure;

    async fn acknowledge(self) -> Result<(), Failure> {
        // Waits for the server's word: an acknowledgement that is lost is an error here.
        self.message.double_ack().await
    }

    async fn retry(self, after: Duration) -> Result<(), Failure> {
        self.message.ack_with(AckKind::Nak(Some(after))).await
    }

    async fn reject(self, reason: Reason) -> Result<(), Failure> {
        let number = self.message.info()?.stream_sequence;
        let letter = PublishMessage::build()
            // So that it is not there twice if this worker dies before it can say so.
            .message_id(format!("{ORDERS}-{number}"))
            .header("Idem-Reason", reason.as_str())
            .payload(self.message.payload.clone());
        self.jetstream.send_publish(DEAD_LETTERS, letter).await?.await?;
        self.message.double_ack().await
    }

    async fn give_back(self) -> Result<(), Failure> {
        self.message.ack_with(AckKind::Nak(None)).await
    }

    async fn extend(&self) -> Result<(), Failure> {
        self.message.ack_with(AckKind::Progress).await
    }
}

/// The orders, and where those go that cannot be shipped.
#[derive(Clone, Debug)]
pub struct Queue {
    jetstream: Context,
    consumer: PullConsumer,
}

impl Queue {
    /// Connects, and makes the streams and the consumer where they are not there.
    ///
    /// # Errors
    ///
    /// JetStream's.
    pub async fn open(url: &str) -> Result<Self, Failure> {
        let client = async_nats::connect(url).await?;
        let jetstream = jetstream::new(client);
        let dead = stream::Config { name: DEAD_LETTERS.to_owned(), ..stream::Config::default() };
        jetstream.get_or_create_stream(dead).await?;
        let orders = stream::Config {
            name: ORDERS.to_owned(),
            retention: RetentionPolicy::WorkQueue,
            max_age: MAX_AGE,
            ..stream::Config::default()
        };
        let orders = jetstream.get_or_create_stream(orders).await?;
        let shippers = pull::Config {
            durable_name: Some("shippers".to_owned()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: ACK_WAIT,
            ..pull::Config::default()
        };
        let consumer = orders.get_or_create_consumer("shippers", shippers).await?;
        Ok(Self { jetstream, consumer })
    }

    /// The next message, whenever it comes.
    ///
    /// # Errors
    ///
    /// JetStream's.
    pub async fn next(&self) -> Result<OrderMessage, Failure> {
        let message = self.consumer.batch().max_messages(1).messages().await?.next().await;
        Ok(self.delivery(message.ok_or("there is none")??))
    }

    fn delivery(&self, message: jetstream::Message) -> OrderMessage {
        OrderMessage { message, jetstream: self.jetstream.clone() }
    }

    /// Sends a message, under the id by which JetStream drops a second one within its window.
    ///
    /// # Errors
    ///
    /// JetStream's.
    pub async fn send(&self, id: &str, body: Vec<u8>) -> Result<(), Failure> {
        let message = PublishMessage::build().message_id(id).payload(body.into());
        self.jetstream.send_publish(ORDERS, message).await?.await?;
        Ok(())
    }

    /// How many messages are not done with, those included that a worker has.
    ///
    /// # Errors
    ///
    /// JetStream's.
    pub async fn waiting(&self) -> Result<u64, Failure> {
        let mut stream = self.jetstream.get_stream(ORDERS).await?;
        Ok(stream.info().await?.state.messages)
    }

    /// How many messages were set aside.
    ///
    /// # Errors
    ///
    /// JetStream's.
    pub async fn dead_letters(&self) -> Result<u64, Failure> {
        let mut stream = self.jetstream.get_stream(DEAD_LETTERS).await?;
        Ok(stream.info().await?.state.messages)
    }

    /// The reason and the body of the dead letter of this number.
    ///
    /// # Errors
    ///
    /// JetStream's.
    pub async fn dead_letter(&self, number: u64) -> Result<(String, Vec<u8>), Failure> {
        let letter = self.jetstream.get_stream(DEAD_LETTERS).await?.get_raw_message(number).await?;
        let reason = letter.headers.get("Idem-Reason").map(ToString::to_string).unwrap_or_default();
        Ok((reason, letter.payload.to_vec()))
    }
}
