//! The dead letters of a queue, and how their messages go back.

use idem_messages::{DeadLetters, StoredLetter, is_header_of_letter};
use lapin::message::BasicGetMessage;
use lapin::options::BasicAckOptions;
use lapin::types::AMQPValue;

use crate::Error;
use crate::connection::Route;
use crate::copy::{DELIVERED, copied, returns};
use crate::link::Link;

/// The dead letters of a queue. RabbitMQ puts those that are not acknowledged back when the connection is closed.
pub struct Letters {
    link: Link,
    queue: String,
    /// How many there were at the start and were not read.
    unread: u32,
    /// Those that are kept and that the queue got back before. A quorum queue drops a message that it got back more often than its
    /// `x-delivery-limit` says, so a copy takes their place.
    returned: Vec<BasicGetMessage>,
}

impl Letters {
    pub(crate) async fn open(link: Link) -> Result<Self, Error> {
        let Route { exchange, routing_key: queue } = link.settings.dead_letters.clone();
        if !exchange.is_empty() {
            let why = "they go to an exchange; make a source with the name of their queue";
            return Err(Error::new("find the dead letters", why));
        }
        let unread = link.messages(&queue).await?;
        Ok(Self { link, queue, unread, returned: Vec::new() })
    }
}

impl DeadLetters for Letters {
    type Letter = BasicGetMessage;

    async fn next(&mut self) -> Result<Option<(StoredLetter, BasicGetMessage)>, Error> {
        let Some(unread) = self.unread.checked_sub(1) else { return Ok(None) };
        let Some(letter) = self.link.get(&self.queue).await? else { return Ok(None) };
        self.unread = unread;
        let properties = &letter.delivery.properties;
        let header = |name: &str| match properties.headers().as_ref()?.inner().get(name)? {
            AMQPValue::LongString(text) => Some(text.to_string()),
            _ => None,
        };
        let message = properties.message_id().as_ref().map(ToString::to_string);
        let mut about = StoredLetter::read(message.clone().unwrap_or_else(|| "-".to_owned()), header);
        // The queue of the worker: its exchange may route the message to other queues, too.
        about.origin = about.consumer.clone();
        about.message = message;
        Ok(Some((about, letter)))
    }

    async fn send(&mut self, letter: &BasicGetMessage, origin: &str) -> Result<(), Error> {
        // As it was before it was set aside, with the exchange and the routing key that it was sent with.
        let is_own = |name: &str| name != DELIVERED && !is_header_of_letter(name);
        let properties = copied(&letter.delivery.properties, is_own, &[]);
        self.link.publisher.publish(&Route::queue(origin.to_owned()), &letter.delivery.data, properties).await
    }

    async fn remove(&mut self, letter: BasicGetMessage) -> Result<(), Error> {
        let removed = letter.delivery.ack(BasicAckOptions::default()).await;
        removed.map(drop).map_err(Error::at("remove a dead letter"))
    }

    fn keep(&mut self, letter: BasicGetMessage) {
        if returns(&letter.delivery.properties) > 0 {
            self.returned.push(letter);
        }
    }

    async fn close(self) -> Result<(), Error> {
        for letter in &self.returned {
            let properties = copied(&letter.delivery.properties, |_| true, &[]);
            let place = Route::queue(self.queue.clone());
            self.link.publisher.publish(&place, &letter.delivery.data, properties).await?;
            letter.delivery.ack(BasicAckOptions::default()).await.map_err(Error::at("keep a dead letter"))?;
        }
        self.link.close().await;
        Ok(())
    }
}
