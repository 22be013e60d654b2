//! The dead letters of a queue, and how their messages go back.

use std::fmt;

use idem_messages::{DeadLetters, StoredLetter, is_header_of_letter};
use lapin::BasicProperties;
use lapin::message::BasicGetMessage;
use lapin::options::BasicAckOptions;
use lapin::types::{AMQPValue, FieldTable};

use crate::Error;
use crate::copy::{DELIVERED, copied};
use crate::link::{Link, Route};

/// The dead letters of a queue. RabbitMQ puts those that are not acknowledged back when the connection is closed.
pub struct Letters {
    link: Link,
    queue: String,
    /// How many there were at the start and were not read.
    unread: u32,
}

impl Letters {
    pub(crate) async fn open(link: Link) -> Result<Self, Error> {
        let Route { exchange, routing_key: queue } = link.settings.dead_letters.clone();
        if !exchange.is_empty() {
            let why = "they go to an exchange; make a source with the name of their queue";
            return Err(Error::new("find the dead letters", why));
        }
        let unread = link.messages(&queue).await?;
        Ok(Self { link, queue, unread })
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
        let to = Route::queue(origin.to_owned());
        self.link.publish(&to, &letter.delivery.data, returned(&letter.delivery.properties)).await
    }

    async fn remove(&mut self, letter: BasicGetMessage) -> Result<(), Error> {
        let removed = letter.delivery.ack(BasicAckOptions::default()).await;
        removed.map(drop).map_err(Error::at("remove a dead letter"))
    }

    fn keep(&mut self, _: BasicGetMessage) {}

    async fn close(self) -> Result<(), Error> {
        self.link.close().await;
        Ok(())
    }
}

/// The properties of the message as it was before it was set aside. It keeps the exchange and the routing key that it was sent with.
fn returned(properties: &BasicProperties) -> BasicProperties {
    let copy = copied(properties, &[]);
    let mut headers = FieldTable::default();
    for (name, value) in copy.headers().iter().flat_map(|headers| headers.inner()) {
        if name.as_str() != DELIVERED && !is_header_of_letter(name.as_str()) {
            headers.insert(name.clone(), value.clone());
        }
    }
    copy.with_headers(headers)
}

impl fmt::Debug for Letters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Letters").field("queue", &self.queue).finish_non_exhaustive()
    }
}
