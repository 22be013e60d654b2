//! A consumer group as a source of messages.

use std::sync::Arc;

use idem_messages::{Broker, GroupBy, Plan, Redrive};
use rdkafka::ClientConfig;
use rdkafka::producer::FutureProducer;

use crate::Error;
use crate::group::{Settings, Shared};
use crate::intake::{Intake, set_default};
use crate::letters;
use crate::received::Received;

/// The partitions of a worker share `HELD` times as many messages as the consumer takes at a time, including
/// messages that wait for a retry.
const HELD: usize = 20;

/// librdkafka's default of `receive.message.max.bytes`. A consumer can receive a record of this size, so the
/// producer of copies must be able to send it.
const RECEIVED: &str = "100000000";

/// Settings that are removed for the producer of copies, because librdkafka would warn about them.
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

/// The messages of Kafka topics. The source reads them as a member of a consumer group.
///
/// The source does not create the topics. See the [crate](crate) for how messages are settled, rebalances,
/// and Kafka's limits.
#[must_use = "a source does nothing until it is `run`"]
pub struct Source {
    config: ClientConfig,
    topics: Vec<String>,
    dead_letters: String,
    retry_topic: Option<String>,
    producer: Option<FutureProducer>,
    group_by: GroupBy<Received>,
}

impl Source {
    /// `config` is rdkafka's configuration, with `bootstrap.servers` and `group.id` at least. `dead_letters`
    /// is the topic that rejected messages go to.
    ///
    /// The source sets `enable.auto.commit` to true and `enable.auto.offset.store` to false, even if `config`
    /// has other values. The source stores only offsets of finished messages, and librdkafka commits these
    /// every `auto.commit.interval.ms` (200 unless set).
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
        }
    }

    /// Retries go to this topic as copies, and the group reads this topic, too. So a long pause does not
    /// block the commit of the message's own partition. Unless this is set, messages wait for their retry in
    /// the worker.
    pub fn retry_topic(mut self, topic: impl Into<String>) -> Self {
        self.retry_topic = Some(topic.into());
        self
    }

    /// The producer that sends copies. Unless this is set, the source makes a producer from the
    /// configuration, with `acks=all`. Unless configured, its `message.timeout.ms` is 20 s, and its
    /// `message.max.bytes` is the largest record that the consumer can receive.
    pub fn producer(mut self, producer: FutureProducer) -> Self {
        self.producer = Some(producer);
        self
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
        let longest = config.get("receive.message.max.bytes").unwrap_or(RECEIVED).to_owned();
        set_default(&mut config, "message.timeout.ms", "20000");
        set_default(&mut config, "message.max.bytes", &longest);
        config.set("acks", "all").create().map_err(Error::at("make the producer of copies"))
    }
}

impl Broker for Source {
    type Message = Received;
    type Reader = Intake;

    async fn connect(self, plan: &mut Plan) -> Result<Intake, Error> {
        let least = plan.capacity;
        let held = least.saturating_mul(HELD);
        let producer = self.producing()?;
        let Self { config, topics, dead_letters, retry_topic, .. } = self;
        let group = config.get("group.id").unwrap_or_default().to_owned();
        let settings = Settings { group, held, least, producer, retry_topic, dead_letters };
        let shared = Arc::new(Shared::new(settings));
        let topics = topics.iter().chain(&shared.settings.retry_topic).map(String::as_str);
        Intake::start(config, &topics.collect::<Vec<_>>(), shared.clone())
    }

    async fn redrive_letters(&self, redrive: &mut Redrive) -> Result<(), Error> {
        let (config, topic) = (self.config.clone(), self.dead_letters.clone());
        letters::redrive(config, self.producing()?, topic, redrive).await
    }
}

idem_messages::broker_methods!(Source, Received, rdkafka::message::OwnedMessage);
