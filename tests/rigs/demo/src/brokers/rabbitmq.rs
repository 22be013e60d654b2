//! RabbitMQ as the broker of the demo: sets up the queues, and counts their messages.

use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use idem::message::StoredLetter;
use idem_broker_tests::rabbitmq::{connect, declare, send};
use idem_rabbitmq::{Received, Source};
use idem_test_servers::RabbitMq;
use lapin::Channel;
use lapin::options::QueueDeclareOptions;
use lapin::types::{AMQPValue, FieldTable};

use crate::shop::consumer;
use crate::{Broker, Failure, Kind, Order, Setup, Shop};

/// How long a message waits for a worker before it becomes a dead letter. The `ttl` of [`ship`](crate::ship)
/// is longer.
const MESSAGE_TTL: Duration = Duration::from_secs(6 * 24 * 60 * 60);

/// How long a node that was started again may refuse to show the queue.
const NOT_READY: Duration = Duration::from_secs(60);

const ORDERS: &str = "orders";
const DEAD_LETTERS: &str = "orders-dead";

/// A RabbitMQ node that the demo starts.
pub struct OnRabbitMq(RabbitMq);

/// Declares the queue and its dead letters.
async fn set_up(channel: &Channel, setup: &Setup) -> Result<(), Failure> {
    let kind = if setup.quorum { "quorum" } else { "classic" };
    let mut aging = FieldTable::default();
    aging.insert("x-queue-type".into(), AMQPValue::LongString(kind.into()));
    declare(channel, DEAD_LETTERS, aging.clone()).await?;
    let millis = i64::try_from(MESSAGE_TTL.as_millis())?;
    aging.insert("x-message-ttl".into(), AMQPValue::LongLongInt(millis));
    aging.insert("x-dead-letter-exchange".into(), AMQPValue::LongString("".into()));
    aging.insert("x-dead-letter-routing-key".into(), AMQPValue::LongString(DEAD_LETTERS.into()));
    Ok(declare(channel, ORDERS, aging).await?)
}

impl OnRabbitMq {
    async fn ready_now(&self) -> Result<u64, Failure> {
        let (_connection, channel) = connect(&self.0.url()).await?;
        let look = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let queue = channel.queue_declare(ORDERS.into(), look, FieldTable::default()).await?;
        Ok(queue.message_count().into())
    }

    /// The number of messages that no worker holds. After a restart, a node refuses for a while to report
    /// this number. A node under load may return an internal error even if it has reported the number before.
    async fn ready(&self) -> Result<u64, Failure> {
        let begin = Instant::now();
        loop {
            match self.ready_now().await {
                Err(_) if begin.elapsed() < NOT_READY => tokio::time::sleep(Duration::from_millis(200)).await,
                told => return told,
            }
        }
    }
}

impl Broker for OnRabbitMq {
    const KIND: Kind = Kind::Rabbitmq;

    async fn start(setup: &Setup) -> Result<Self, Failure> {
        let server = RabbitMq::start();
        let (_connection, channel) = connect(&server.url()).await?;
        set_up(&channel, setup).await?;
        Ok(Self(server))
    }

    fn kill(&mut self) {
        // A node that is killed early forgets its queues: see `Limits of RabbitMQ` in the docs of
        // `idem-rabbitmq`.
        self.0.remember_queues();
        self.0.server().kill();
    }

    async fn restart(&mut self) -> Result<(), Failure> {
        self.0.server().restart();
        self.ready().await.map(drop)
    }

    fn address(&self) -> String {
        self.0.url()
    }

    async fn work(address: &str, shop: &Shop, shutdown: impl Future<Output = ()>) -> Result<(), Failure> {
        let consumer = consumer().redelivery_horizon(MESSAGE_TTL);
        let source = Source::new(address, ORDERS, DEAD_LETTERS);
        let handler = |message: &Received| shop.handle(Order::parse(&message.data));
        source.run_until(shutdown, consumer, handler).await?;
        Ok(())
    }

    async fn send(&self, bodies: Vec<String>) -> Result<(), Failure> {
        // Waits for many confirmations at a time, in the order of sending.
        let (_connection, channel) = connect(&self.0.url()).await?;
        let sends = stream::iter(&bodies).map(|body| send(&channel, ORDERS, body));
        Ok(sends.buffered(256).try_collect().await?)
    }

    async fn waiting(&self) -> Result<u64, Failure> {
        match self.ready().await? {
            // Only RabbitMQ's own tool counts the messages that workers hold.
            0 => Ok(self.0.messages(ORDERS)),
            ready => Ok(ready),
        }
    }

    async fn dead_letters(&self) -> Result<Vec<StoredLetter>, Failure> {
        Ok(Source::new(self.address(), ORDERS, DEAD_LETTERS).dead_letters().await?)
    }
}
