//! A queue as a source of messages.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use idem_runtime::drain;
use idem_runtime::message::{Choose, Consumer, OnError, Summary};
use lapin::{Connection, ConnectionProperties};

use crate::Error;
use crate::link::{Connect, GroupBy, Route, Settings};
use crate::received::Received;
use crate::taking::Taking;

/// How long the shutdown waits for results that are still to be recorded.
const DRAIN: Duration = Duration::from_secs(10);

/// The messages of a RabbitMQ queue, over a connection of its own. The source connects again when that is lost.
///
/// The source does not declare the queue and the queue or exchange of the dead letters: do that with lapin or an operator's
/// tool. See the [crate](crate) for what RabbitMQ gets, the delay queues that the source declares, and RabbitMQ's limits.
#[must_use = "a source does nothing until it is `run`"]
pub struct Source {
    connect: Connect,
    queue: String,
    dead_letters: Route,
    group_by: Option<GroupBy>,
    prefetch: Option<u16>,
    drain: Duration,
}

impl Source {
    /// `uri` has lapin's form, such as `amqp://user:password@host:5672/vhost`. `dead_letters` is the queue that rejected messages
    /// go to: see [`dead_letter_exchange`](Self::dead_letter_exchange) for an exchange.
    pub fn new(uri: impl Into<String>, queue: impl Into<String>, dead_letters: impl Into<String>) -> Self {
        let uri = uri.into();
        let connect = move || {
            let uri = uri.clone();
            async move { Connection::connect(&uri, ConnectionProperties::default()).await }
        };
        Self::connected_by(connect, queue, dead_letters)
    }

    /// As [`new`](Self::new), over connections that `connect` opens: for TLS, a heartbeat, or a connection name that operators
    /// see. The source calls it again whenever a connection is lost.
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
            drain: DRAIN,
        }
    }

    /// Rejected messages go to this exchange, with this routing key. A message that the exchange routes to no queue stays in its own
    /// queue.
    pub fn dead_letter_exchange(
        mut self,
        exchange: impl Into<String>,
        routing_key: impl Into<String>,
    ) -> Self {
        self.dead_letters = Route { exchange: exchange.into(), routing_key: routing_key.into() };
        self
    }

    /// Messages for which `group` returns the same text are handled one after another: see
    /// [`Delivery::group`](idem_runtime::message::Delivery::group). Unless this is set, messages are handled in no order.
    ///
    /// With several workers, order needs a queue with `x-single-active-consumer`. Set [`prefetch`](Self::prefetch) above the
    /// concurrency, so that the waiting messages of one group leave room for others.
    pub fn group_by(
        mut self,
        group: impl Fn(&lapin::message::Delivery) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.group_by = Some(Arc::new(group));
        self
    }

    /// How many unacknowledged messages RabbitMQ delivers to this worker. Unless set, as many as the consumer holds, so that no
    /// message waits here that another worker could handle.
    pub fn prefetch(mut self, messages: u16) -> Self {
        self.prefetch = Some(messages.max(1));
        self
    }

    /// How long the shutdown waits for results that are still to be recorded and claims to be released; 10 s unless set.
    /// See [`idem::drain`](drain()).
    pub fn drain(mut self, patience: Duration) -> Self {
        self.drain = patience;
        self
    }

    /// Handles messages for ever: [`run_until`](Self::run_until) without a shutdown.
    ///
    /// # Errors
    ///
    /// As [`run_until`](Self::run_until).
    pub async fn run<C, O, H, F, T, E>(self, consumer: Consumer<C, O>, handler: H) -> Result<Summary, Error>
    where
        H: Fn(&Received) -> F,
        F: Future<Output = Result<T, E>>,
        E: fmt::Display,
        C: Choose<E>,
        O: OnError<Received, E>,
    {
        self.run_until(pending(), consumer, handler).await
    }

    /// Handles messages until `shutdown` ends; then finishes the handlers that run, gives back the messages that are not begun,
    /// and drains.
    ///
    /// If the broker goes away later, the source waits until it is back.
    ///
    /// # Errors
    ///
    /// Before the first message: RabbitMQ cannot be reached, or the queue or the destination of dead letters does not exist. Later
    /// failures are reported as events and counted in the summary.
    ///
    /// # Cancellation
    ///
    /// As [`Consumer::run`]: handlers and the connection are dropped, and RabbitMQ delivers their messages again.
    pub async fn run_until<C, O, H, F, T, E>(
        self,
        shutdown: impl Future<Output = ()>,
        consumer: Consumer<C, O>,
        handler: H,
    ) -> Result<Summary, Error>
    where
        H: Fn(&Received) -> F,
        F: Future<Output = Result<T, E>>,
        E: fmt::Display,
        C: Choose<E>,
        O: OnError<Received, E>,
    {
        let held = u16::try_from(consumer.capacity()).unwrap_or(u16::MAX);
        let Self { connect, queue, dead_letters, group_by, prefetch, drain: patience } = self;
        let prefetch = prefetch.unwrap_or(held);
        let settings = Arc::new(Settings { connect, queue, dead_letters, prefetch, group_by });
        let mut taking = Taking::begin(settings).await?;
        let summary = consumer.run_until(shutdown, taking.messages(), handler).await;
        taking.close().await;
        drain(patience).await;
        Ok(summary)
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the URI, which holds a password.
        f.debug_struct("Source")
            .field("queue", &self.queue)
            .field("dead_letters", &self.dead_letters)
            .finish_non_exhaustive()
    }
}
