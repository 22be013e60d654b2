//! A queue as a source of messages.

use std::sync::Arc;

use futures_util::FutureExt as _;
use idem_messages::{Broker, GroupBy, Plan, Redrive};
use lapin::{Connection, ConnectionProperties};

use crate::Error;
use crate::connection::{Connect, Route};
use crate::link::{Link, Settings};
use crate::received::Received;
use crate::taking::Taking;

/// The messages of a RabbitMQ queue. The source has its own connection. It opens a second one when it first
/// publishes a copy of a message (for a retry or a dead letter). It connects again if a connection is lost.
///
/// The source declares neither the queue nor the queue or exchange of the dead letters. Declare them with
/// lapin or an operator's tool. See the [crate](crate) for how messages are settled, the delay queues that
/// the source declares, and RabbitMQ's limits.
#[must_use = "a source does nothing until it is `run`"]
pub struct Source {
    connect: Connect,
    queue: String,
    dead_letters: Route,
    group_by: GroupBy<Received>,
    prefetch: Option<u16>,
}

impl Source {
    /// `uri` has lapin's form, such as `amqp://user:password@host:5672/vhost`. `dead_letters` is the queue
    /// that rejected messages go to; for an exchange, see
    /// [`dead_letter_exchange`](Self::dead_letter_exchange).
    pub fn new(uri: impl Into<String>, queue: impl Into<String>, dead_letters: impl Into<String>) -> Self {
        let uri = uri.into();
        let connect = move || {
            let uri = uri.clone();
            async move { Connection::connect(&uri, ConnectionProperties::default()).await }
        };
        Self::connected_by(connect, queue, dead_letters)
    }

    /// As [`new`](Self::new), over connections that `connect` opens: for TLS, a heartbeat, or a connection
    /// name that operators see. The source calls `connect` again for the copies, and whenever a connection is
    /// lost.
    pub fn connected_by<F>(
        connect: impl Fn() -> F + Send + Sync + 'static,
        queue: impl Into<String>,
        dead_letters: impl Into<String>,
    ) -> Self
    where
        F: Future<Output = lapin::Result<Connection>> + Send + 'static,
    {
        Self {
            connect: Arc::new(move || connect().boxed()),
            queue: queue.into(),
            dead_letters: Route::queue(dead_letters.into()),
            group_by: None,
            prefetch: None,
        }
    }

    /// Sends rejected messages to this exchange, with this routing key. A message that the exchange routes to
    /// no queue stays in its own queue.
    pub fn dead_letter_exchange(
        mut self,
        exchange: impl Into<String>,
        routing_key: impl Into<String>,
    ) -> Self {
        self.dead_letters = Route { exchange: exchange.into(), routing_key: routing_key.into() };
        self
    }

    /// How many unacknowledged messages RabbitMQ delivers to this worker. Unless set, RabbitMQ delivers as
    /// many as the consumer may hold, so that another worker can handle the other messages. With
    /// [`group_by`](Self::group_by), set a higher number: otherwise one group that waits for a retry can use
    /// up the number, and stop the other groups. All these messages must be acknowledged within RabbitMQ's
    /// `consumer_timeout`.
    pub fn prefetch(mut self, messages: u16) -> Self {
        self.prefetch = Some(messages.max(1));
        self
    }
}

impl Broker for Source {
    type Message = Received;
    type Reader = Taking;

    async fn connect(self, plan: &mut Plan) -> Result<Taking, Error> {
        let Self { connect, queue, dead_letters, prefetch, .. } = self;
        let prefetch = prefetch.unwrap_or_else(|| u16::try_from(plan.capacity).unwrap_or(u16::MAX));
        let settings = Arc::new(Settings { connect, queue, dead_letters, prefetch });
        Taking::begin(settings).await
    }

    async fn redrive_letters(&self, redrive: &mut Redrive) -> Result<(), Error> {
        let Self { connect, queue, dead_letters, .. } = self;
        let (connect, queue, dead_letters) = (connect.clone(), queue.clone(), dead_letters.clone());
        let link = Link::open(Arc::new(Settings { connect, queue, dead_letters, prefetch: 0 })).await?;
        let ended = link.redrive_letters(redrive).await;
        // Closes the connection also after a failure, so that no letter stays hidden.
        link.close().await;
        ended
    }
}

idem_messages::broker_methods!(Source, Received, lapin::message::Delivery);
