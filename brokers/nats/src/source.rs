//! A pull consumer as a source of messages.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, PullConsumer};
use async_nats::jetstream::{self, Context};
use idem_runtime::drain;
use idem_runtime::message::{Choose, Consumer, OnError, Summary};

use crate::Error;
use crate::received::{GroupBy, Received, Shared};
use crate::taking::Taking;

/// How long the shutdown waits for results that are still to be recorded.
const DRAIN: Duration = Duration::from_secs(10);

/// The messages of a JetStream pull consumer.
///
/// The source does not create the stream, the consumer and the stream of the dead letters: do that with async-nats or an
/// operator's tool. See the [crate](crate) for what JetStream gets, and its limits.
#[must_use = "a source does nothing until it is `run`"]
pub struct Source {
    jetstream: Context,
    consumer: PullConsumer,
    dead_letters: String,
    group_by: Option<GroupBy>,
    fetch: Option<usize>,
    drain: Duration,
}

impl Source {
    /// `dead_letters` is the subject that rejected messages go to. A rejected message is acknowledged only after a stream has
    /// stored its dead letter; without a stream for that subject the message stays in its own stream.
    pub fn new(jetstream: Context, consumer: PullConsumer, dead_letters: impl Into<String>) -> Self {
        let dead_letters = dead_letters.into();
        Self { jetstream, consumer, dead_letters, group_by: None, fetch: None, drain: DRAIN }
    }

    /// Messages for which `group` returns the same text are handled one after another: see
    /// [`Delivery::group`](idem_runtime::message::Delivery::group). Unless this is set, messages are handled in no order.
    ///
    /// JetStream may give the messages of one group to different workers: with several workers, order needs `max_ack_pending = 1`.
    pub fn group_by(
        mut self,
        group: impl Fn(&jetstream::Message) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.group_by = Some(Arc::new(group));
        self
    }

    /// How many messages one request asks for; half of what the consumer holds unless set, and at least 1. The shutdown gives back
    /// fetched messages that no handler has begun. While the store fails, fetched messages wait in this process, and their
    /// `ack_wait` is not extended.
    pub fn fetch(mut self, messages: usize) -> Self {
        self.fetch = Some(messages);
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
    /// Unless `consumer` sets them, [`extend_every`](Consumer::extend_every) is a third of the consumer's `ack_wait`, and
    /// [`redelivery_horizon`](Consumer::redelivery_horizon) the `max_age` of the stream. If the server goes away, the source waits
    /// until it is back.
    ///
    /// # Errors
    ///
    /// Before the first message: the consumer does not have [`AckPolicy::Explicit`], or JetStream does not answer. Later failures
    /// are reported as events and counted in the summary.
    ///
    /// # Cancellation
    ///
    /// As [`Consumer::run`]: handlers are dropped, and JetStream delivers their messages again after `ack_wait`.
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
        let consumer = self.fitted(consumer).await?;
        let at_once = self.fetch.unwrap_or(consumer.capacity() / 2);
        let Self { jetstream, consumer: pull, dead_letters, group_by, drain: patience, .. } = self;
        let max_deliver = Some(pull.cached_info().config.max_deliver).filter(|most| *most > 0);
        let shared = Arc::new(Shared { jetstream, dead_letters, max_deliver, group_by });
        let mut taking = Taking::new(pull, shared.clone(), at_once);
        let mut summary = consumer.run_until(shutdown, taking.messages(), handler).await;
        let left = taking.give_back().await;
        let flushed = shared.jetstream.client().flush().await.map_err(Error::at("flush the connection"));
        for error in [left.err(), flushed.err()].into_iter().flatten() {
            summary.broker_errors += 1;
            tracing::warn!(target: "idem", event = "broker_failed", %error, "the broker failed at the shutdown");
        }
        drain(patience).await;
        Ok(summary)
    }

    /// Adds the settings that follow from JetStream's consumer and its stream.
    async fn fitted<C, O>(&self, mut consumer: Consumer<C, O>) -> Result<Consumer<C, O>, Error> {
        let info = self.consumer.cached_info();
        if info.config.ack_policy != AckPolicy::Explicit {
            return Err(Error::new("use the consumer", "its ack_policy must be `AckPolicy::Explicit`"));
        }
        let shortest = info.config.backoff.iter().copied().chain([info.config.ack_wait]).min();
        if let Some(ack_wait) = shortest.filter(|wait| !wait.is_zero()) {
            consumer = consumer.or_extend_every(ack_wait / 3);
        }
        let stream = self.jetstream.get_stream(&info.stream_name).await;
        let max_age = stream.map_err(Error::at("read the stream's settings"))?.cached_info().config.max_age;
        Ok(if max_age.is_zero() { consumer } else { consumer.or_redelivery_horizon(max_age) })
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = self.consumer.cached_info();
        f.debug_struct("Source")
            .field("stream", &info.stream_name)
            .field("consumer", &info.name)
            .field("dead_letters", &self.dead_letters)
            .finish_non_exhaustive()
    }
}
