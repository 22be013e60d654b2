//! The dead letters of a queue, and how their messages go back.

use idem_messages::{DeadLetters, StoredLetter, is_header_of_letter};
use lapin::message::BasicGetMessage;
use lapin::options::BasicAckOptions;

use crate::Error;
use crate::connection::Route;
use crate::copy::{DELIVERED, copied, returns, text};
use crate::link::Link;

/// The dead letters of a queue. RabbitMQ puts those that are not acknowledged back when the connection is closed.
pub struct Letters {
    link: Link,
    /// How many there were at the start and were not read.
    unread: u32,
}

impl Letters {
    pub(crate) async fn open(link: Link) -> Result<Self, Error> {
        let Route { exchange, routing_key: queue } = &link.settings.dead_letters;
        let doing = "find the dead letters";
        if !exchange.is_empty() {
            let why = "they go to an exchange; make a source with the name of their queue";
            return Err(Error::new(doing, why));
        }
        let unread = link.find(queue).await?.map_err(Error::at(doing))?;
        Ok(Self { link, unread })
    }
}

impl DeadLetters for Letters {
    type Letter = BasicGetMessage;

    async fn next(&mut self) -> Result<Option<BasicGetMessage>, Error> {
        let Some(unread) = self.unread.checked_sub(1) else { return Ok(None) };
        self.unread = unread;
        self.link.get(&self.link.settings.dead_letters.routing_key).await
    }

    fn about(&self, letter: &BasicGetMessage) -> StoredLetter {
        let properties = &letter.delivery.properties;
        let message = properties.message_id().as_ref().map(ToString::to_string);
        let id = message.clone().unwrap_or_else(|| "-".to_owned());
        let mut about = StoredLetter::read(id, |name| text(properties, name));
        // The queue of the worker: its exchange may route the message to other queues, too.
        about.origin = about.consumer.clone();
        about.message = message;
        about
    }

    async fn send(&self, letter: &BasicGetMessage, origin: &str) -> Result<(), Error> {
        // As it was before it was set aside, with the exchange and the routing key that it was sent with.
        let is_own = |name: &str| name != DELIVERED && !is_header_of_letter(name);
        let properties = copied(&letter.delivery.properties, is_own, &[]);
        self.link.publisher.publish(&Route::queue(origin.to_owned()), &letter.delivery.data, properties).await
    }

    async fn remove(&mut self, letter: BasicGetMessage) -> Result<(), Error> {
        let removed = letter.delivery.ack(BasicAckOptions::default()).await;
        removed.map(drop).map_err(Error::at("remove a dead letter"))
    }

    /// A quorum queue drops a message that it got back more often than its `x-delivery-limit` says. So a copy
    /// takes the place of a letter that it got back before.
    async fn keep(&mut self, letter: BasicGetMessage) -> Result<(), Error> {
        if returns(&letter.delivery.properties) == 0 {
            return Ok(());
        }
        let properties = copied(&letter.delivery.properties, |_| true, &[]);
        let Link { publisher, settings, .. } = &self.link;
        publisher.publish(&settings.dead_letters, &letter.delivery.data, properties).await?;
        self.remove(letter).await
    }

    async fn close(self) -> Result<(), Error> {
        self.link.close().await;
        Ok(())
    }
}
