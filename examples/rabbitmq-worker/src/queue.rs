//! A RabbitMQ queue with its dead letters and its waiting rooms, and what RabbitMQ is told of a message.
//!
//! Owns the glue to RabbitMQ; it knows no store and calls no function of the shop.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use idem::message::{Delivery, Reason};
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicGetOptions, BasicNackOptions, BasicPublishOptions,
    BasicQosOptions, ConfirmSelectOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, ExchangeKind};
use worker_demo::{Failure, Order, ShipError};

/// How long a message waits for a worker; then it is a dead letter. The `ttl` of what handles it is longer.
pub const MESSAGE_TTL: Duration = Duration::from_secs(6 * 24 * 60 * 60);

/// How long messages are kept back that are to be tried again. RabbitMQ delays none, but what is too old in
/// a queue goes on to where the queue says; one queue for each delay, as only the first of a queue is looked
/// at.
const DELAYS: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(10),
    Duration::from_secs(60),
    Duration::from_secs(300),
];

/// The header of a dead letter that says why.
const REASON: &str = "idem-reason";

/// Written to disk.
const PERSISTENT: u8 = 2;

/// A queue of orders, by one connection.
#[derive(Clone, Debug)]
pub struct Queue(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    connection: Connection,
    /// For messages and what is said of them.
    consuming: Channel,
    /// For copies, which RabbitMQ confirms.
    publishing: Channel,
}

impl Queue {
    /// Connects, and declares the queue and what belongs to it.
    ///
    /// # Errors
    ///
    /// RabbitMQ's.
    pub async fn open(url: &str, name: &str) -> Result<Self, Failure> {
        let connection = Connection::connect(url, ConnectionProperties::default()).await?;
        let consuming = connection.create_channel().await?;
        let publishing = connection.create_channel().await?;
        publishing.confirm_select(ConfirmSelectOptions::default()).await?;
        let queue = Self(Arc::new(Inner { name: name.to_owned(), connection, consuming, publishing }));
        queue.declare_all().await?;
        Ok(queue)
    }

    async fn declare_all(&self) -> Result<(), Failure> {
        let dead = self.dead_letter_name();
        let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        let (channel, none) = (&self.0.publishing, FieldTable::default());
        channel.exchange_declare(dead.as_str().into(), ExchangeKind::Fanout, durable, none.clone()).await?;
        self.declare(&dead, none.clone()).await?;
        let bind = QueueBindOptions::default();
        channel.queue_bind(dead.as_str().into(), dead.as_str().into(), "".into(), bind, none).await?;
        // What nobody took in time goes there too.
        self.declare(&self.0.name, aging(MESSAGE_TTL, &dead, "")).await?;
        for delay in DELAYS {
            self.declare(&self.delay_name(delay), aging(delay, "", &self.0.name)).await?;
        }
        Ok(())
    }

    async fn declare(&self, name: &str, arguments: FieldTable) -> Result<(), Failure> {
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        self.0.publishing.queue_declare(name.into(), durable, arguments).await?;
        Ok(())
    }

    fn dead_letter_name(&self) -> String {
        format!("{}-dead", self.0.name)
    }

    fn delay_name(&self, delay: Duration) -> String {
        format!("{}-after-{}ms", self.0.name, delay.as_millis())
    }

    /// Asks for messages, no more than `prefetch` of which are with this worker at a time.
    async fn consume(&self, prefetch: u16) -> Result<lapin::Consumer, Failure> {
        let Inner { name, consuming, .. } = &*self.0;
        consuming.basic_qos(prefetch, BasicQosOptions::default()).await?;
        let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
        Ok(consuming.basic_consume(name.as_str().into(), "".into(), options, arguments).await?)
    }

    /// The next message, with nobody to work at it yet: it is in the queue again once its connection is closed.
    ///
    /// # Errors
    ///
    /// RabbitMQ's, and that there is no message.
    pub async fn next(&self) -> Result<OrderMessage, Failure> {
        let name = self.0.name.as_str().into();
        let message = self.0.consuming.basic_get(name, BasicGetOptions::default()).await?;
        let message = message.ok_or("the queue is empty")?.delivery;
        Ok(OrderMessage { message, queue: self.clone() })
    }

    /// The next dead letter, and why it is one. It stays one.
    ///
    /// # Errors
    ///
    /// RabbitMQ's, and that there is none.
    pub async fn dead_letter(&self) -> Result<(String, Vec<u8>), Failure> {
        let name = self.dead_letter_name();
        let letter = self.0.consuming.basic_get(name.as_str().into(), BasicGetOptions::default()).await?;
        let letter = letter.ok_or("there are no dead letters")?.delivery;
        let headers = letter.properties.headers().as_ref().ok_or("it has no headers")?;
        match headers.inner().get(REASON) {
            Some(AMQPValue::LongString(reason)) => Ok((reason.to_string(), letter.data)),
            _ => Err("it has no reason".into()),
        }
    }

    /// Sends a message, and waits until RabbitMQ has it on its disk.
    ///
    /// # Errors
    ///
    /// RabbitMQ's.
    pub async fn send(&self, body: &[u8]) -> Result<(), Failure> {
        self.publish("", &self.0.name, body, FieldTable::default()).await
    }

    async fn publish(
        &self,
        exchange: &str,
        key: &str,
        body: &[u8],
        headers: FieldTable,
    ) -> Result<(), Failure> {
        let properties = BasicProperties::default().with_delivery_mode(PERSISTENT).with_headers(headers);
        let options = BasicPublishOptions::default();
        let sent =
            self.0.publishing.basic_publish(exchange.into(), key.into(), options, body, properties).await?;
        if sent.await?.is_ack() { Ok(()) } else { Err("RabbitMQ did not take the message".into()) }
    }

    /// How many messages were set aside.
    ///
    /// # Errors
    ///
    /// RabbitMQ's.
    pub async fn dead_letters(&self) -> Result<u64, Failure> {
        self.ready(&self.dead_letter_name()).await
    }

    /// How many messages are in the queue or wait to come back to it. RabbitMQ does not say how many a worker
    /// has.
    ///
    /// # Errors
    ///
    /// RabbitMQ's.
    pub async fn waiting(&self) -> Result<u64, Failure> {
        let mut waiting = self.ready(&self.0.name).await?;
        for delay in DELAYS {
            waiting += self.ready(&self.delay_name(delay)).await?;
        }
        Ok(waiting)
    }

    async fn ready(&self, name: &str) -> Result<u64, Failure> {
        let look = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let queue = self.0.publishing.queue_declare(name.into(), look, FieldTable::default()).await?;
        Ok(queue.message_count().into())
    }

    /// Takes leave: what was delivered and not acknowledged is in the queue again.
    pub async fn close(&self) {
        // A connection that is lost is closed.
        let _ = self.0.connection.close(200, "done".into()).await;
    }
}

/// Of a queue whose messages go elsewhere when they are this old.
fn aging(age: Duration, exchange: &str, key: &str) -> FieldTable {
    let mut arguments = FieldTable::default();
    let millis = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    arguments.insert("x-message-ttl".into(), AMQPValue::LongLongInt(millis));
    arguments.insert("x-dead-letter-exchange".into(), AMQPValue::LongString(exchange.into()));
    if !key.is_empty() {
        arguments.insert("x-dead-letter-routing-key".into(), AMQPValue::LongString(key.into()));
    }
    arguments
}

/// The messages of a queue, whose connection is made anew where it is lost.
#[derive(Debug)]
pub(crate) struct Taking {
    url: String,
    name: String,
    prefetch: u16,
    open: Option<(Queue, lapin::Consumer)>,
}

impl Taking {
    pub(crate) fn new(url: &str, name: &str, prefetch: u16) -> Self {
        Self { url: url.to_owned(), name: name.to_owned(), prefetch, open: None }
    }

    /// The messages, as they come.
    pub(crate) fn messages(&mut self) -> BoxStream<'_, Result<OrderMessage, Failure>> {
        stream::unfold(self, |taking| async { Some((taking.next().await, taking)) }).boxed()
    }

    async fn next(&mut self) -> Result<OrderMessage, Failure> {
        let (queue, messages) = match &mut self.open {
            Some(open) => open,
            closed => {
                let queue = Queue::open(&self.url, &self.name).await?;
                let messages = queue.consume(self.prefetch).await?;
                closed.insert((queue, messages))
            }
        };
        match messages.next().await {
            Some(Ok(message)) => Ok(OrderMessage { message, queue: queue.clone() }),
            ended => {
                self.open = None;
                Err(ended.and_then(Result::err).map_or_else(|| "no more messages".into(), Failure::from))
            }
        }
    }

    /// What was delivered and not acknowledged is in the queue again at once.
    pub(crate) async fn close(self) {
        if let Some((queue, _)) = self.open {
            queue.close().await;
        }
    }
}

/// A message, and the queue it is from.
#[derive(Debug)]
pub struct OrderMessage {
    message: lapin::message::Delivery,
    queue: Queue,
}

impl OrderMessage {
    /// The order in it.
    ///
    /// # Errors
    ///
    /// [`ShipError::NoOrder`].
    pub fn order(&self) -> Result<Order, ShipError> {
        Order::parse(&self.message.data)
    }
}

impl Delivery for OrderMessage {
    type Error = Failure;

    async fn acknowledge(self) -> Result<(), Failure> {
        // RabbitMQ does not answer: if this is lost, the message comes again and is replayed.
        if self.message.ack(BasicAckOptions::default()).await? { Ok(()) } else { Err(GONE.into()) }
    }

    async fn retry(self, after: Duration) -> Result<(), Failure> {
        let [.., longest] = DELAYS;
        let delay = DELAYS.into_iter().find(|delay| *delay >= after).unwrap_or(longest);
        let room = self.queue.delay_name(delay);
        self.queue.publish("", &room, &self.message.data, FieldTable::default()).await?;
        // Dying here makes two of one message, which is what the handler is for.
        self.acknowledge().await
    }

    async fn reject(self, reason: Reason) -> Result<(), Failure> {
        let mut headers = FieldTable::default();
        headers.insert(REASON.into(), AMQPValue::LongString(reason.as_str().into()));
        self.queue.publish(&self.queue.dead_letter_name(), "", &self.message.data, headers).await?;
        self.acknowledge().await
    }

    async fn give_back(self) -> Result<(), Failure> {
        let back = BasicNackOptions { requeue: true, ..BasicNackOptions::default() };
        if self.message.nack(back).await? { Ok(()) } else { Err(GONE.into()) }
    }
}

const GONE: &str = "the channel that the message came by is closed";
