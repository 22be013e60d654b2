//! A consumer group as a source of messages.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use idem_runtime::drain;
use idem_runtime::message::{Choose, Consumer, OnError, Summary};
use rdkafka::ClientConfig;
use rdkafka::message::OwnedMessage;
use rdkafka::producer::FutureProducer;

use crate::Error;
use crate::group::Limits;
use crate::intake::Intake;
use crate::received::{GroupBy, Received, Shared};

/// How long the shutdown waits for results that are still to be recorded.
const DRAIN: Duration = Duration::from_secs(10);

/// How long a partition that goes to another worker is kept, unless set.
const HAND_OVER: Duration = Duration::from_secs(3);

/// The default of `held`, as a multiple of what the consumer holds. Messages that wait behind others count too.
const HELD: usize = 20;

/// Settings that do not apply to the producer of copies: librdkafka would warn about them.
const OF_CONSUMERS: [&str; 8] = [
    "auto.commit.interval.ms",
    "auto.offset.reset",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "group.id",
    "group.instance.id",
    "partition.assignment.strategy",
    "session.timeout.ms",
];

/// The messages of Kafka topics, as a member of a consumer group.
///
/// The source does not create the topics. See the [crate](crate) for how messages are settled, rebalances, and Kafka's limits.
#[must_use = "a source does nothing until it is `run`"]
pub struct Source {
    config: ClientConfig,
    topics: Vec<String>,
    dead_letters: String,
    retry_topic: Option<String>,
    producer: Option<FutureProducer>,
    group_by: Option<GroupBy>,
    held: Option<usize>,
    hand_over: Duration,
    drain: Duration,
}

impl Source {
    /// `config` is rdkafka's, with `bootstrap.servers` and `group.id` at least. `dead_letters` is the topic that rejected
    /// messages go to.
    ///
    /// The source sets `enable.auto.commit` to true and `enable.auto.offset.store` to false, also where `config` has other values: it
    /// stores only offsets that are done, and librdkafka commits those every `auto.commit.interval.ms` (200 unless set).
    pub fn new(
        config: ClientConfig,
        topics: impl IntoIterator<Item = impl Into<String>>,
        dead_letters: impl Into<String>,
    ) -> Self {
        Self {
            config,
            topics: topics.into_iter().map(Into::into).collect(),
            dead_letters: dead_letters.into(),
            retry_topic: None,
            producer: None,
            group_by: None,
            held: None,
            hand_over: HAND_OVER,
            drain: DRAIN,
        }
    }

    /// Retries go to this topic as copies, and the group reads it too, so a long pause does not hold up the commit of the message's own
    /// partition. Unless this is set, retries wait in their worker.
    pub fn retry_topic(mut self, topic: impl Into<String>) -> Self {
        self.retry_topic = Some(topic.into());
        self
    }

    /// The producer that sends copies. Unless this is set, the source makes one from the configuration, with `acks=all` and, unless
    /// configured, a `message.timeout.ms` of 20 s.
    pub fn producer(mut self, producer: FutureProducer) -> Self {
        self.producer = Some(producer);
        self
    }

    /// Messages for which `group` returns the same text are handled one after another: see
    /// [`Delivery::group`](idem_runtime::message::Delivery::group). Unless this is set, messages are handled in no order. The message's
    /// key is a good group: Kafka delivers all messages with one key to one worker, in order.
    pub fn group_by(
        mut self,
        group: impl Fn(&OwnedMessage) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.group_by = Some(Arc::new(group));
        self
    }

    /// How many messages the worker holds, including those that wait for a retry; 20 times what the consumer holds unless set. Each
    /// partition has an equal share, but at least as many as the consumer holds.
    pub fn held(mut self, messages: usize) -> Self {
        self.held = Some(messages.max(1));
        self
    }

    /// How long a partition that goes to another worker is kept for its messages in work; 3 s unless set. The whole group waits for
    /// it, so keep it well below `session.timeout.ms`.
    pub fn hand_over(mut self, patience: Duration) -> Self {
        self.hand_over = patience;
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

    /// Handles messages until `shutdown` ends; then finishes the handlers that run, commits, leaves the group, and drains.
    ///
    /// If the broker goes away, the source waits until it is back.
    ///
    /// # Errors
    ///
    /// Before the first message: librdkafka refuses the configuration. Later failures, such as a missing topic, are reported as
    /// events and counted in the summary.
    ///
    /// # Cancellation
    ///
    /// As [`Consumer::run`]: handlers are dropped, the worker leaves its group in the background, and others get its messages again.
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
        let capacity = consumer.capacity();
        let limits = Limits {
            held: self.held.unwrap_or(capacity.saturating_mul(HELD)),
            least: capacity,
            hand_over: self.hand_over,
        };
        let producer = self.producing()?;
        let Self { config, topics, dead_letters, retry_topic, group_by, drain: patience, .. } = self;
        let names: Vec<_> = topics.iter().chain(&retry_topic).map(String::as_str).collect();
        let mut intake = Intake::start(config, &names, limits)?;
        let shared = Arc::new(Shared { producer, retry_topic, dead_letters, group_by });
        let messages = intake.messages().map(|taken| taken.map(|taken| Received::new(taken, shared.clone())));
        // In a box, so that the returned future is `Send` whatever the handler borrows.
        let mut summary = consumer.run_until(shutdown, messages.boxed(), handler).await;
        if let Err(error) = intake.close().await {
            summary.broker_errors += 1;
            tracing::warn!(target: "idem", event = "broker_failed", %error, "the broker failed at the shutdown");
        }
        drain(patience).await;
        Ok(summary)
    }

    /// The producer of copies.
    fn producing(&self) -> Result<FutureProducer, Error> {
        if let Some(producer) = &self.producer {
            return Ok(producer.clone());
        }
        let mut config = self.config.clone();
        OF_CONSUMERS.iter().for_each(|name| {
            config.remove(name);
        });
        if config.get("message.timeout.ms").is_none() {
            config.set("message.timeout.ms", "20000");
        }
        config.set("acks", "all").create().map_err(Error::at("make the producer of copies"))
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the configuration, which may hold a password.
        f.debug_struct("Source")
            .field("topics", &self.topics)
            .field("retry_topic", &self.retry_topic)
            .field("dead_letters", &self.dead_letters)
            .finish_non_exhaustive()
    }
}
