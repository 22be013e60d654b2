//! A message of RabbitMQ, and how it is settled.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use idem_runtime::message::{Delivery, Reason};
use lapin::options::{BasicAckOptions, BasicNackOptions};
use lapin::types::AMQPValue;
use tokio::runtime::Handle;

use crate::Error;
use crate::copy::{DELIVERED, ERROR, REASON, copied, deliveries};
use crate::link::Link;

/// The pause before a message whose copy failed goes back to its queue.
const REFUSED: Duration = Duration::from_secs(1);

/// A message as RabbitMQ delivered it. It dereferences to lapin's message.
///
/// A message that is dropped before it is settled goes back to its queue.
pub struct Received {
    message: lapin::message::Delivery,
    /// The text of the handler's last error.
    error: Option<String>,
    link: Arc<Link>,
    /// Whether an ack or a nack was sent. RabbitMQ closes the channel at a second one.
    settled: bool,
}

impl Received {
    pub(crate) const fn new(message: lapin::message::Delivery, link: Arc<Link>) -> Self {
        Self { message, error: None, link, settled: false }
    }

    /// Acknowledges the message once its copy is stored. A worker that dies between the two leaves the message twice, which an
    /// idempotent handler allows for.
    async fn replaced(self, copy: Result<(), Error>) -> Result<(), Error> {
        match copy {
            Ok(()) => self.acknowledge().await,
            Err(error) => {
                tokio::time::sleep(REFUSED).await;
                self.give_back().await?;
                Err(error)
            }
        }
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

    async fn acknowledge(mut self) -> Result<(), Error> {
        let doing = "acknowledge the message";
        self.settled = true;
        // RabbitMQ does not confirm this. If it is lost, the message is delivered again and its result is replayed.
        let told = self.message.ack(BasicAckOptions::default()).await.map_err(Error::at(doing))?;
        if told { Ok(()) } else { Err(Error::new(doing, CLOSED)) }
    }

    async fn retry(self, after: Duration) -> Result<(), Error> {
        let delivered = AMQPValue::LongUInt(deliveries(&self.message.properties));
        let properties = copied(&self.message.properties, &[(DELIVERED, delivered)]);
        let copy = self.link.delay(after, &self.message.data, properties).await;
        self.replaced(copy).await
    }

    async fn reject(self, reason: Reason) -> Result<(), Error> {
        let delivered = AMQPValue::LongUInt(deliveries(&self.message.properties));
        let text = |text: &str| AMQPValue::LongString(text.into());
        let error = self.error.as_deref().map(|error| (ERROR, text(error)));
        let known = [(DELIVERED, delivered), (REASON, text(reason.as_str()))];
        let new: Vec<_> = known.into_iter().chain(error).collect();
        let properties = copied(&self.message.properties, &new);
        let copy = self.link.publish(&self.link.settings.dead_letters, &self.message.data, properties).await;
        self.replaced(copy).await
    }

    async fn give_back(mut self) -> Result<(), Error> {
        let doing = "give the message back";
        self.settled = true;
        let told = self.message.nack(back()).await.map_err(Error::at(doing))?;
        if told { Ok(()) } else { Err(Error::new(doing, CLOSED)) }
    }

    fn failed(&mut self, error: &str) {
        self.error = Some(error.to_owned());
    }

    fn deliveries(&self) -> Option<u32> {
        Some(deliveries(&self.message.properties))
    }

    fn system(&self) -> Option<&'static str> {
        Some("rabbitmq")
    }

    fn destination(&self) -> Option<String> {
        let (exchange, queue) = (&self.message.exchange, &self.message.routing_key);
        // With the default exchange the routing key is the queue. With another one it may hold an id, so the exchange is named.
        Some(if exchange.as_str().is_empty() { queue } else { exchange }.to_string())
    }

    fn id(&self) -> Option<String> {
        self.message.properties.message_id().as_ref().map(ToString::to_string)
    }

    fn group(&self) -> Option<String> {
        self.link.settings.group_by.as_ref()?(&self.message)
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        // RabbitMQ delivers an unsettled message again only when its channel closes, so it must be given back.
        if let (false, Ok(runtime)) = (self.settled, Handle::try_current()) {
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
