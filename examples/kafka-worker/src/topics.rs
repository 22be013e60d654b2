//! A topic with its retry topic and its dead letters, and what becomes of a message there.
//!
//! Owns the glue to Kafka's producers and offsets; it knows no store and calls no function of the shop.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use idem::message::{Delivery, Reason};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, Headers, Message as _, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{Offset, TopicPartitionList};
use worker_demo::{Failure, Order, ShipError};

use crate::intake::{AFTER, Intake, Taken};

/// How long Kafka keeps a message. The `ttl` of what handles it is longer, also for a message that waits in
/// the retry topic.
pub const RETENTION: Duration = Duration::from_secs(3 * 24 * 60 * 60);

/// The header of a copy that says how often its message was delivered.
const DELIVERED: &str = "idem-delivered";

const PATIENCE: Duration = Duration::from_secs(10);

/// After which a worker that is silent has its partitions taken.
pub const SESSION: Duration = Duration::from_secs(6);

/// A topic of orders and what belongs to it.
#[derive(Clone)]
pub struct Topics {
    name: String,
    partitions: i32,
    config: ClientConfig,
    producer: FutureProducer,
    /// Asks for offsets; takes no part in the group.
    looking: Arc<BaseConsumer>,
}

impl Topics {
    /// Connects, and makes the topics where they are not there.
    ///
    /// # Errors
    ///
    /// Kafka's.
    pub async fn open(servers: &str, name: &str, partitions: i32) -> Result<Self, Failure> {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", servers);
        let admin: AdminClient<DefaultClientContext> = config.create()?;
        let mut producing = config.clone();
        // What a worker sends are few copies; and the broker of the demo tells of a batch only where it begins
        // when it is asked where a partition ends.
        producing.set("acks", "all").set("batch.num.messages", "1").set("message.timeout.ms", "30000");
        config
            .set("group.id", format!("{name}-shippers"))
            .set("auto.offset.reset", "earliest")
            .set("session.timeout.ms", SESSION.as_millis().to_string());
        let looking = Arc::new(config.create()?);
        let topics =
            Self { name: name.to_owned(), partitions, producer: producing.create()?, config, looking };
        topics.create(&admin).await?;
        Ok(topics)
    }

    async fn create(&self, admin: &AdminClient<DefaultClientContext>) -> Result<(), Failure> {
        let names = self.names();
        let retention = RETENTION.as_millis().to_string();
        let topics = names.each_ref().map(|name| {
            let topic = NewTopic::new(name, self.partitions, TopicReplication::Fixed(1));
            topic.set("retention.ms", &retention)
        });
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        for created in admin.create_topics(&topics, &options).await? {
            match created {
                Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((topic, error)) => return Err(format!("the topic {topic}: {error}").into()),
            }
        }
        Ok(())
    }

    /// The orders, those that are tried again, and those that are not.
    fn names(&self) -> [String; 3] {
        [self.name.clone(), self.retry_name(), self.dead_letter_name()]
    }

    fn retry_name(&self) -> String {
        format!("{}-retry", self.name)
    }

    fn dead_letter_name(&self) -> String {
        format!("{}-dead", self.name)
    }

    /// Joins the group.
    pub(crate) fn consume(&self) -> Result<Intake, Failure> {
        Intake::start(&self.config, &[&self.name, &self.retry_name()])
    }

    pub(crate) fn messages<'i>(
        &'i self,
        intake: &'i mut Intake,
    ) -> impl Stream<Item = Result<OrderMessage, KafkaError>> + 'i {
        intake.messages().map(|taken| Ok(OrderMessage { taken: taken?, topics: self.clone() }))
    }

    /// Sends a message, and waits until Kafka has it.
    ///
    /// # Errors
    ///
    /// Kafka's.
    pub async fn send(&self, key: &str, body: &[u8]) -> Result<(), Failure> {
        self.publish(&self.name, Some(key.as_bytes()), body, OwnedHeaders::new()).await
    }

    async fn publish(
        &self,
        topic: &str,
        key: Option<&[u8]>,
        body: &[u8],
        headers: OwnedHeaders,
    ) -> Result<(), Failure> {
        let mut record = FutureRecord::<[u8], [u8]>::to(topic).payload(body).headers(headers);
        record.key = key;
        self.producer.send(record, PATIENCE).await.map_err(|(error, _)| error)?;
        Ok(())
    }

    /// How many messages are not done with.
    ///
    /// # Errors
    ///
    /// Kafka's.
    pub async fn waiting(&self) -> Result<u64, Failure> {
        let (topics, names) = (self.clone(), [self.name.clone(), self.retry_name()]);
        tokio::task::spawn_blocking(move || topics.not_committed(&names)).await?
    }

    /// How many messages were set aside.
    ///
    /// # Errors
    ///
    /// Kafka's.
    pub async fn dead_letters(&self) -> Result<u64, Failure> {
        let (topics, names) = (self.clone(), [self.dead_letter_name()]);
        tokio::task::spawn_blocking(move || topics.not_committed(&names)).await?
    }

    /// How many messages of these the group has not committed.
    fn not_committed(&self, names: &[String]) -> Result<u64, Failure> {
        let mut list = TopicPartitionList::new();
        for name in names {
            list.add_partition_range(name, 0, self.partitions - 1);
        }
        let committed = self.looking.committed_offsets(list, PATIENCE)?;
        let mut waiting = 0;
        for element in committed.elements() {
            let (first, end) =
                self.looking.fetch_watermarks(element.topic(), element.partition(), PATIENCE)?;
            let next = match element.offset() {
                Offset::Offset(next) => next,
                _ => first,
            };
            waiting += u64::try_from(end - next)?;
        }
        Ok(waiting)
    }
}

/// A message, and the topics it belongs to.
pub struct OrderMessage {
    taken: Taken,
    topics: Topics,
}

impl OrderMessage {
    /// How often it was delivered before this time, by the header of its copies. What a worker that died had is not
    /// counted.
    fn delivered(&self) -> u32 {
        let headers = self.taken.message.headers();
        let header = headers.and_then(|headers| headers.iter().find(|header| header.key == DELIVERED));
        header.and_then(|header| std::str::from_utf8(header.value?).ok()?.parse().ok()).unwrap_or(0)
    }

    /// The order in it.
    ///
    /// # Errors
    ///
    /// [`ShipError::NoOrder`].
    pub fn order(&self) -> Result<Order, ShipError> {
        Order::parse(self.taken.message.payload().unwrap_or_default())
    }

    /// Sends it elsewhere with its headers, these in place of earlier ones; then this one is done with.
    async fn move_to(self, topic: &str, new: &[(&str, &str)]) -> Result<(), Failure> {
        let message = &self.taken.message;
        let is_new = |name: &str| new.iter().any(|(new, _)| *new == name) || name == AFTER;
        let mut headers = OwnedHeaders::new();
        for header in message.headers().into_iter().flat_map(Headers::iter) {
            if !is_new(header.key) {
                headers = headers.insert(header);
            }
        }
        for (key, value) in new {
            headers = headers.insert(Header { key, value: Some(*value) });
        }
        self.topics.publish(topic, message.key(), message.payload().unwrap_or_default(), headers).await?;
        self.acknowledge().await
    }
}

impl Delivery for OrderMessage {
    type Error = Failure;

    async fn acknowledge(self) -> Result<(), Failure> {
        // Committed with the next round, when all before it are done too: if this worker dies before that, it
        // comes again and is replayed.
        self.taken.done();
        Ok(())
    }

    async fn retry(self, after: Duration) -> Result<(), Failure> {
        let topic = self.topics.retry_name();
        let (after, delivered) = (after.as_millis().to_string(), (self.delivered() + 1).to_string());
        self.move_to(&topic, &[(AFTER, &after), (DELIVERED, &delivered)]).await
    }

    async fn reject(self, reason: Reason) -> Result<(), Failure> {
        let topic = self.topics.dead_letter_name();
        self.move_to(&topic, &[("idem-reason", reason.as_str())]).await
    }

    async fn give_back(self) -> Result<(), Failure> {
        // It is not done: whoever has the partition next goes on from here.
        Ok(())
    }

    fn deliveries(&self) -> Option<u32> {
        Some(self.delivered().saturating_add(1))
    }

    fn id(&self) -> Option<String> {
        let message = &self.taken.message;
        Some(format!("{}/{}@{}", message.topic(), message.partition(), message.offset()))
    }
}
