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
use crate::copy::{DELIVERED, REASON, copied, deliveries};
use crate::link::Link;

/// How long a message is kept back that can neither be handled nor copied.
const REFUSED: Duration = Duration::from_secs(1);

/// A message as RabbitMQ delivered it: it dereferences to lapin's own.
///
/// A message that is dropped before it is settled goes back to its queue.
pub struct Received {
    message: lapin::message::Delivery,
    link: Arc<Link>,
    /// RabbitMQ heard of it: a second word would close the channel.
    settled: bool,
}

impl Received {
    pub(crate) const fn new(message: lapin::message::Delivery, link: Arc<Link>) -> Self {
        Self { message, link, settled: false }
    }

    /// Once there is a copy, the message itself is done with. Dying before that makes two of one message, which is
    /// what idempotent handlers are for.
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
        // RabbitMQ does not answer: if this is lost, the message comes again and is replayed.
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
        let reason = AMQPValue::LongString(reason.as_str().into());
        let properties = copied(&self.message.properties, &[(DELIVERED, delivered), (REASON, reason)]);
        let copy = self.link.publish(&self.link.settings.dead_letters, &self.message.data, properties).await;
        self.replaced(copy).await
    }

    async fn give_back(mut self) -> Result<(), Error> {
        let doing = "give the message back";
        self.settled = true;
        let told = self.message.nack(back()).await.map_err(Error::at(doing))?;
        if told { Ok(()) } else { Err(Error::new(doing, CLOSED)) }
    }

    fn deliveries(&self) -> Option<u32> {
        Some(deliveries(&self.message.properties))
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
        // RabbitMQ takes back nothing of a connection that lives.
        if let (false, Ok(runtime)) = (self.settled, Handle::try_current()) {
            let acker = self.message.acker.clone();
            runtime.spawn(async move { acker.nack(back()).await });
        }
    }
}

/// Into its queue.
fn back() -> BasicNackOptions {
    BasicNackOptions { requeue: true, ..BasicNackOptions::default() }
}

const CLOSED: &str = "the channel that it came by is closed";
