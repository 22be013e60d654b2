//! The connections to RabbitMQ: one delivers messages, and the other publishes copies of messages.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use lapin::options::{
    BasicCancelOptions, BasicConsumeOptions, BasicQosOptions, ExchangeDeclareOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ExchangeKind};
use tokio::sync::Mutex;

use crate::Error;
use crate::connection::{Connect, OPEN, Route, close_connection};
use crate::publisher::Publisher;

/// The pauses before a retry, in milliseconds. Each pause has its own queue, because RabbitMQ expires only
/// the first message of a queue.
const DELAYS: [u64; 14] = [
    100, 300, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 120_000, 300_000, 900_000, 3_600_000, 21_600_000,
    86_400_000,
];

/// The settings that all links of a source share.
pub(crate) struct Settings {
    pub(crate) connect: Connect,
    pub(crate) queue: String,
    pub(crate) dead_letters: Route,
    pub(crate) prefetch: u16,
}

/// A connection with a channel for messages and their acknowledgements, and the publisher of copies.
pub(crate) struct Link {
    pub(crate) settings: Arc<Settings>,
    connection: Connection,
    pub(crate) consuming: Channel,
    pub(crate) publisher: Publisher,
    /// The pauses whose delay queue this link has declared.
    declared: Mutex<HashSet<u64>>,
}

impl Link {
    /// Connects. Checks that the queue and the destination of dead letters exist, and that delay queues can
    /// be declared.
    pub(crate) async fn open(settings: Arc<Settings>) -> Result<Self, Error> {
        let connection = (settings.connect)().await.map_err(Error::at("connect"))?;
        let consuming = connection.create_channel().await.map_err(Error::at(OPEN))?;
        let publisher = Publisher::new(settings.connect.clone());
        let link = Self { settings, connection, consuming, publisher, declared: Mutex::default() };
        link.check().await?;
        Ok(link)
    }

    /// Whether RabbitMQ still counts the messages of this link as delivered to this worker.
    pub(crate) fn is_open(&self) -> bool {
        self.consuming.status().connected() && self.connection.status().connected()
    }

    async fn check(&self) -> Result<(), Error> {
        let Settings { queue, dead_letters: Route { exchange, routing_key }, .. } = &*self.settings;
        let letters = "find the dead letters";
        self.find(queue).await?.map_err(Error::at("find the queue"))?;
        if exchange.is_empty() {
            self.find(routing_key).await?.map_err(Error::at(letters))?;
        } else {
            let look = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
            // RabbitMQ ignores the kind in a passive declaration.
            let (kind, none) = (ExchangeKind::Fanout, FieldTable::default());
            let channel = self.throwaway().await?;
            let declaration = channel.exchange_declare(exchange.as_str().into(), kind, look, none).await;
            declaration.map_err(Error::at(letters))?;
            close(channel).await;
        }
        // The first declaration shows whether this user may declare queues. The other queues are declared
        // only if they exist, to check their arguments: a declaration with other arguments fails.
        let [first, others @ ..] = DELAYS;
        self.declare(first).await?;
        for delay in others {
            if self.find(&self.delay_queue(delay)).await?.is_ok() {
                self.declare(delay).await?;
            }
        }
        Ok(())
    }

    /// Looks for a queue. Returns how many messages are ready in it.
    pub(crate) async fn find(&self, queue: &str) -> Result<lapin::Result<u32>, Error> {
        let look = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let channel = self.throwaway().await?;
        let declaration = channel.queue_declare(queue.into(), look, FieldTable::default()).await;
        if declaration.is_ok() {
            close(channel).await;
        }
        Ok(declaration.map(|queue| queue.message_count()))
    }

    /// A channel for one declaration, because RabbitMQ closes a channel on which a declaration fails.
    async fn throwaway(&self) -> Result<Channel, Error> {
        self.connection.create_channel().await.map_err(Error::at(OPEN))
    }

    pub(crate) async fn consume(&self) -> Result<lapin::Consumer, Error> {
        let Settings { queue, prefetch, .. } = &*self.settings;
        let limited = self.consuming.basic_qos(*prefetch, BasicQosOptions::default()).await;
        limited.map_err(Error::at("limit the prefetch"))?;
        let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
        let begun = self.consuming.basic_consume(queue.as_str().into(), "".into(), options, arguments).await;
        begun.map_err(Error::at("consume the queue"))
    }

    /// Ends a consumer. Its messages can still be acknowledged.
    pub(crate) async fn cancel(&self, consumer: &lapin::Consumer) -> Result<(), Error> {
        let ended = self.consuming.basic_cancel(consumer.tag(), BasicCancelOptions::default()).await;
        ended.map_err(Error::at("end the consumer"))
    }

    /// Publishes a copy that comes back to the queue after this time.
    pub(crate) async fn delay(
        &self,
        after: Duration,
        body: &[u8],
        properties: BasicProperties,
    ) -> Result<(), Error> {
        let delay = rounded(after);
        if !self.declared.lock().await.contains(&delay) {
            self.declare(delay).await?;
        }
        self.publisher.publish(&Route::queue(self.delay_queue(delay)), body, properties).await
    }

    fn delay_queue(&self, delay: u64) -> String {
        format!("{}-after-{delay}ms", self.settings.queue)
    }

    async fn declare(&self, delay: u64) -> Result<(), Error> {
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let arguments = aging(delay, &self.settings.queue);
        let channel = self.throwaway().await?;
        let made = channel.queue_declare(self.delay_queue(delay).into(), durable, arguments).await;
        made.map_err(Error::at("declare a delay queue"))?;
        close(channel).await;
        self.declared.lock().await.insert(delay);
        Ok(())
    }

    /// Closes the connections. RabbitMQ then puts unacknowledged messages back into the queue at once.
    pub(crate) async fn close(&self) {
        close_connection(&self.connection).await;
        self.publisher.close().await;
    }
}

async fn close(channel: Channel) {
    // An error means that the channel is closed already.
    let _ = channel.close(200, "done".into()).await;
}

/// The shortest of `DELAYS` that is at least this pause. If all of `DELAYS` are shorter, the longest of them.
fn rounded(after: Duration) -> u64 {
    let [.., longest] = DELAYS;
    DELAYS.into_iter().find(|delay| Duration::from_millis(*delay) >= after).unwrap_or(longest)
}

/// The arguments of a delay queue. When its messages reach this age, they go to `queue`. They leave the delay
/// queue only after `queue` has confirmed them. A classic delay queue would lose a message that `queue`
/// cannot take at that moment.
fn aging(age: u64, queue: &str) -> FieldTable {
    let mut arguments = FieldTable::default();
    let millis = i64::try_from(age).unwrap_or(i64::MAX);
    for (name, value) in [
        ("x-queue-type", "quorum"),
        ("x-overflow", "reject-publish"),
        ("x-dead-letter-strategy", "at-least-once"),
    ] {
        arguments.insert(name.into(), AMQPValue::LongString(value.into()));
    }
    arguments.insert("x-message-ttl".into(), AMQPValue::LongLongInt(millis));
    arguments.insert("x-dead-letter-exchange".into(), AMQPValue::LongString("".into()));
    arguments.insert("x-dead-letter-routing-key".into(), AMQPValue::LongString(queue.into()));
    arguments
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{DELAYS, rounded};

    #[test]
    fn a_pause_is_rounded_up_and_a_day_is_the_longest() {
        assert_eq!(rounded(Duration::ZERO), 100);
        assert_eq!(rounded(Duration::from_millis(1_000)), 1_000);
        assert_eq!(rounded(Duration::from_millis(1_001)), 2_000);
        assert_eq!(rounded(Duration::from_secs(90_000)), 86_400_000);
        assert!(DELAYS.is_sorted());
    }
}
