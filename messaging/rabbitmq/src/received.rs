//! A message of RabbitMQ, and how it is settled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use idem_messages::{DELIVERED, DeadLetter, Delivery, ERROR};
use lapin::BasicProperties;
use lapin::options::{BasicAckOptions, BasicNackOptions};
use lapin::types::{AMQPValue, ShortString};

use crate::Error;
use crate::copy::{EXCHANGE, ROUTING_KEY, copied, deliveries, origin};
use crate::link::{Link, Settings};

/// A message as RabbitMQ delivered it. It dereferences to lapin's message. Even after a retry, it has the
/// exchange and the routing key that the message was first sent with.
pub struct Received {
    pub(crate) message: lapin::message::Delivery,
    link: Arc<Link>,
    /// Whether RabbitMQ has stored a copy of the message, so that only the ack is missing.
    copied: AtomicBool,
}

impl Received {
    pub(crate) fn new(mut message: lapin::message::Delivery, link: Arc<Link>) -> Self {
        if let Some((exchange, routing_key)) = origin(&message.properties) {
            message.exchange = exchange;
            message.routing_key = routing_key;
        }
        Self { message, link, copied: AtomicBool::default() }
    }

    /// Publishes a copy, unless one is stored already, and then acknowledges the message.
    async fn replaced_by(&self, publish: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
        if !self.copied.load(Ordering::Relaxed) {
            publish.await?;
            self.copied.store(true, Ordering::Relaxed);
        }
        // If the worker dies here, the message exists twice, which an idempotent handler tolerates.
        self.acknowledge().await
    }

    /// The properties of a copy with these new headers.
    fn properties(&self, new: &[(&'static str, AMQPValue)]) -> BasicProperties {
        let text = |text: &ShortString| AMQPValue::LongString(text.as_str().into());
        let lapin::message::Delivery { exchange, routing_key, properties, .. } = &self.message;
        let known = [
            (DELIVERED, AMQPValue::LongUInt(deliveries(properties))),
            (EXCHANGE, text(exchange)),
            (ROUTING_KEY, text(routing_key)),
        ];
        let new: Vec<_> = known.into_iter().chain(new.iter().cloned()).collect();
        copied(properties, |name| name != ERROR, &new)
    }
}

impl Delivery for Received {
    type Error = Error;

    const SYSTEM: Option<&'static str> = Some("rabbitmq");

    async fn acknowledge(&self) -> Result<(), Error> {
        let doing = "acknowledge the message";
        // RabbitMQ does not confirm an ack. If the ack is lost, the message is delivered again and its result
        // is replayed.
        let sent = self.message.ack(BasicAckOptions::default()).await.map_err(Error::at(doing))?;
        // lapin returns `false` also for a second ack. If the channel is open, the first ack was sent.
        if sent || !self.message.acker.poisoned() { Ok(()) } else { Err(Error::new(doing, CLOSED)) }
    }

    async fn retry(&self, after: Duration) -> Result<(), Error> {
        self.replaced_by(self.link.delay(after, &self.message.data, self.properties(&[]))).await
    }

    async fn reject(&self, letter: &DeadLetter) -> Result<(), Error> {
        let Settings { dead_letters, queue, .. } = &*self.link.settings;
        // The origin is this queue and not the exchange, because the exchange may route the message to other
        // queues, too.
        let headers = letter.headers(self, queue, queue).into_iter();
        let headers = headers.map(|(name, value)| (name, AMQPValue::LongString(value.into())));
        let properties = self.properties(&headers.collect::<Vec<_>>());
        self.replaced_by(self.link.publisher.publish(dead_letters, &self.message.data, properties)).await
    }

    async fn give_back(&self) -> Result<(), Error> {
        if self.copied.load(Ordering::Relaxed) {
            return self.acknowledge().await;
        }
        let doing = "give the message back";
        let back = BasicNackOptions { requeue: true, ..BasicNackOptions::default() };
        let sent = self.message.nack(back).await.map_err(Error::at(doing))?;
        if sent { Ok(()) } else { Err(Error::new(doing, CLOSED)) }
    }

    fn is_held(&self) -> bool {
        self.link.is_open()
    }

    fn deliveries(&self) -> Option<u32> {
        Some(deliveries(&self.message.properties))
    }

    fn destination(&self) -> Option<String> {
        Some(self.link.settings.queue.clone())
    }

    fn id(&self) -> Option<String> {
        self.message.properties.message_id().as_ref().map(ToString::to_string)
    }
}

const CLOSED: &str = "the channel that delivered it is closed";
