//! A message of RabbitMQ, and how it is settled.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use idem_messages::{CONSUMER, DeadLetter, Delivery, ERROR};
use lapin::BasicProperties;
use lapin::options::{BasicAckOptions, BasicNackOptions};
use lapin::types::{AMQPValue, ShortString};
use tokio::runtime::Handle;

use crate::Error;
use crate::copy::{DELIVERED, EXCHANGE, ROUTING_KEY, copied, deliveries, origin};
use crate::link::{Link, Settings};

/// A message as RabbitMQ delivered it. It dereferences to lapin's message, whose exchange and routing key are those that it was sent
/// with, also after a retry.
///
/// A message that is dropped before it is settled goes back to its queue.
pub struct Received {
    message: lapin::message::Delivery,
    link: Arc<Link>,
    /// Whether an ack or a nack was sent. RabbitMQ closes the channel at a second one.
    settled: AtomicBool,
    /// Whether RabbitMQ has stored a copy of it: only its ack is left to do.
    copied: AtomicBool,
}

impl Received {
    pub(crate) fn new(mut message: lapin::message::Delivery, link: Arc<Link>) -> Self {
        if let Some((exchange, routing_key)) = origin(&message.properties) {
            message.exchange = exchange;
            message.routing_key = routing_key;
        }
        Self { message, link, settled: AtomicBool::default(), copied: AtomicBool::default() }
    }

    /// Acknowledges the message once a copy is stored.
    async fn replaced_by(&self, publish: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
        if !self.copied.load(Ordering::Relaxed) {
            publish.await?;
            self.copied.store(true, Ordering::Relaxed);
        }
        // A worker that dies here leaves the message twice, which an idempotent handler allows for.
        self.acknowledge().await
    }

    /// The properties of every copy.
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

impl Deref for Received {
    type Target = lapin::message::Delivery;

    fn deref(&self) -> &lapin::message::Delivery {
        &self.message
    }
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tag = self.message.delivery_tag;
        f.debug_struct("Received").field("delivery_tag", &tag).finish_non_exhaustive()
    }
}

impl Delivery for Received {
    type Error = Error;

    async fn acknowledge(&self) -> Result<(), Error> {
        let doing = "acknowledge the message";
        self.settled.store(true, Ordering::Relaxed);
        // RabbitMQ does not confirm this. If it is lost, the message is delivered again and its result is replayed.
        let sent = self.message.ack(BasicAckOptions::default()).await.map_err(Error::at(doing))?;
        // An earlier ack that was not waited for is sent while the channel is open.
        if sent || !self.message.acker.poisoned() { Ok(()) } else { Err(Error::new(doing, CLOSED)) }
    }

    async fn retry(&self, after: Duration) -> Result<(), Error> {
        self.replaced_by(self.link.delay(after, &self.message.data, self.properties(&[]))).await
    }

    async fn reject(&self, letter: &DeadLetter) -> Result<(), Error> {
        let Settings { dead_letters, queue, .. } = &*self.link.settings;
        let headers = letter.headers().into_iter().chain([(CONSUMER, queue.clone())]);
        let headers = headers.map(|(name, value)| (name, AMQPValue::LongString(value.into())));
        let properties = self.properties(&headers.collect::<Vec<_>>());
        self.replaced_by(self.link.publisher.publish(dead_letters, &self.message.data, properties)).await
    }

    async fn give_back(&self) -> Result<(), Error> {
        if self.copied.load(Ordering::Relaxed) {
            return self.acknowledge().await;
        }
        let doing = "give the message back";
        self.settled.store(true, Ordering::Relaxed);
        let sent = self.message.nack(back()).await.map_err(Error::at(doing))?;
        if sent { Ok(()) } else { Err(Error::new(doing, CLOSED)) }
    }

    fn is_held(&self) -> bool {
        self.link.is_open()
    }

    fn deliveries(&self) -> Option<u32> {
        Some(deliveries(&self.message.properties))
    }

    fn system(&self) -> Option<&'static str> {
        Some("rabbitmq")
    }

    fn destination(&self) -> Option<String> {
        Some(self.link.settings.queue.clone())
    }

    fn id(&self) -> Option<String> {
        self.message.properties.message_id().as_ref().map(ToString::to_string)
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        // RabbitMQ delivers an unsettled message again only when its channel closes, so it must be given back.
        if let (false, Ok(runtime)) = (*self.settled.get_mut(), Handle::try_current()) {
            let acker = self.message.acker.clone();
            runtime.spawn(async move { acker.nack(back()).await });
        }
    }
}

/// The options of a nack that puts the message back into its queue.
fn back() -> BasicNackOptions {
    BasicNackOptions { requeue: true, ..BasicNackOptions::default() }
}

const CLOSED: &str = "the channel that delivered it is closed";
