//! Copies of messages, and RabbitMQ's confirmations.
//!
//! Owns the rule that only one publish at a time is in flight on a channel. Otherwise, if RabbitMQ returned a
//! message, lapin could assign it to the confirmation of another message. The publisher has its own
//! connection, because an alarm blocks everything that a publishing connection sends, including
//! acknowledgements.

use std::sync::{Mutex, MutexGuard, PoisonError};

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::ShortString;
use lapin::{BasicProperties, Channel, Confirmation, Connection};
use tokio::sync::{Mutex as AsyncMutex, Semaphore};

use crate::Error;
use crate::connection::{Connect, OPEN, Route, close_connection};

/// How many copies are published at a time.
const CHANNELS: usize = 8;

const DOING: &str = "publish a copy";

/// Publishes copies, over a connection that it opens for the first copy.
pub(crate) struct Publisher {
    connect: Connect,
    connection: AsyncMutex<Option<Connection>>,
    /// The channels without a publish in flight. Some may be closed, because RabbitMQ closes a channel when a
    /// publish names an exchange that does not exist.
    idle: Mutex<Vec<Channel>>,
    permits: Semaphore,
}

impl Publisher {
    pub(crate) fn new(connect: Connect) -> Self {
        let (connection, idle) = (AsyncMutex::default(), Mutex::default());
        Self { connect, connection, idle, permits: Semaphore::new(CHANNELS) }
    }

    /// Publishes a message, and waits until RabbitMQ confirms that it is stored.
    pub(crate) async fn publish(
        &self,
        to: &Route,
        body: &[u8],
        properties: BasicProperties,
    ) -> Result<(), Error> {
        let name = |text: &String| ShortString::try_new(text).map_err(Error::at(DOING));
        let (exchange, key) = (name(&to.exchange)?, name(&to.routing_key)?);
        // Without `mandatory`, RabbitMQ confirms and drops a message that it can route to no queue.
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let _permit = self.permits.acquire().await.map_err(Error::at(DOING))?;
        let channel = self.channel().await?;
        let sent = channel.basic_publish(exchange, key, options, body, properties).await;
        let confirmation = sent.map_err(Error::at(DOING))?.await.map_err(Error::at(DOING))?;
        // The channel becomes idle only now. If this future is dropped earlier, nobody uses the channel
        // again, so no other publish gets this confirmation.
        self.idle().push(channel);
        match confirmation {
            Confirmation::Ack(None) => Ok(()),
            Confirmation::Ack(Some(_)) => Err(Error::new(DOING, "RabbitMQ has no queue for it")),
            _ => Err(Error::new(DOING, "RabbitMQ refused it")),
        }
    }

    /// A channel without a publish in flight.
    async fn channel(&self) -> Result<Channel, Error> {
        let mut connection = self.connection.lock().await;
        let connection = match connection.take().filter(|connection| connection.status().connected()) {
            Some(open) => connection.insert(open),
            None => connection.insert((self.connect)().await.map_err(Error::at("connect"))?),
        };
        if connection.status().blocked() {
            return Err(Error::new(DOING, "RabbitMQ blocks publishers because of an alarm"));
        }
        if let Some(channel) = self.opened() {
            return Ok(channel);
        }
        let channel = connection.create_channel().await.map_err(Error::at(OPEN))?;
        let confirms = channel.confirm_select(ConfirmSelectOptions::default()).await;
        confirms.map_err(Error::at("have publishes confirmed"))?;
        Ok(channel)
    }

    /// An idle channel that is open. Removes closed channels.
    fn opened(&self) -> Option<Channel> {
        let mut idle = self.idle();
        idle.retain(|channel| channel.status().connected());
        idle.pop()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Channel>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn close(&self) {
        let connection = self.connection.lock().await.take();
        // A blocked connection is not closed, because RabbitMQ would not read the close.
        if let Some(connection) = connection.filter(|connection| !connection.status().blocked()) {
            close_connection(&connection).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt as _;
    use futures_util::future::join_all;
    use idem_test_servers::RabbitMq;
    use lapin::options::QueueDeclareOptions;
    use lapin::types::FieldTable;
    use lapin::{BasicProperties, Connection, ConnectionProperties};

    use super::{Connect, Publisher, Route};

    #[tokio::test]
    async fn each_copy_that_no_queue_takes_is_an_error_and_no_other_is() {
        let node = RabbitMq::start();
        let url = node.url();
        let connect: Connect = Arc::new(move || {
            let url = url.clone();
            async move { Connection::connect(&url, ConnectionProperties::default()).await }.boxed()
        });
        let connection = connect().await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        let (options, none) = (QueueDeclareOptions::default(), FieldTable::default());
        channel.queue_declare("there".into(), options, none).await.unwrap();
        let publisher = Publisher::new(connect);
        let copies = (0..4_000).map(|number| {
            let (publisher, name) = (&publisher, if number % 2 == 0 { "there" } else { "missing" });
            async move {
                let to = Route::queue(name.to_owned());
                (name, publisher.publish(&to, b"copy", BasicProperties::default()).await.is_ok())
            }
        });
        let wrong = join_all(copies).await.into_iter().filter(|(name, stored)| (*name == "there") != *stored);
        assert_eq!(wrong.count(), 0);
        let too_long = Route::queue("q".repeat(300));
        let refused = publisher.publish(&too_long, b"copy", BasicProperties::default()).await;
        assert!(refused.is_err(), "an error, and no panic");
    }
}
