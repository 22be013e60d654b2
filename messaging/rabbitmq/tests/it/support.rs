//! A queue with its dead letters.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use idem_broker_tests::{DeadLetter, Handler, Losing, Queue, Settings};
use idem_messages::{ERROR, REASON, Redrive, RedriveSummary, StoredLetter};
use idem_rabbitmq::{Source, Summary};
use idem_test_servers::RabbitMq;
use lapin::options::{
    BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};

/// A node that several threads use: RabbitMQ's command-line tool takes a second, and the worker must run meanwhile.
#[derive(Clone)]
pub(crate) struct Node(Arc<Mutex<RabbitMq>>);

impl Node {
    pub(crate) fn start() -> Self {
        Self(Arc::new(Mutex::new(RabbitMq::start())))
    }

    pub(crate) fn url(&self) -> String {
        self.0.lock().unwrap().url()
    }

    /// The URL of a new user who may declare only what this pattern matches.
    pub(crate) fn user(&self, name: &str, may_declare: &str) -> String {
        self.0.lock().unwrap().user(name, may_declare)
    }

    /// Raises the alarm that blocks publishers, or ends it.
    pub(crate) async fn alarm(&self, is_raised: bool) {
        let node = self.0.clone();
        tokio::task::spawn_blocking(move || node.lock().unwrap().alarm(is_raised)).await.unwrap();
    }

    /// Kills the node and starts it again with its queues.
    pub(crate) async fn restart(&self) {
        let node = self.0.clone();
        let restart = move || {
            let mut node = node.lock().unwrap();
            node.remember_queues();
            node.server().kill();
            node.server().restart();
        };
        tokio::task::spawn_blocking(restart).await.unwrap();
    }

    /// How many messages are in a queue and its delay queues, including those that a worker holds.
    pub(crate) async fn left(&self, name: &'static str) -> u64 {
        let node = self.0.clone();
        // Counted twice, because a message may be on its way from one queue to another.
        let count = move || {
            let node = node.lock().unwrap();
            node.messages(name).max(node.messages(name))
        };
        tokio::task::spawn_blocking(count).await.unwrap()
    }
}

pub(crate) struct Orders {
    node: Node,
    pub(crate) channel: Channel,
    _connection: Connection,
    pub(crate) name: &'static str,
}

impl Orders {
    pub(crate) async fn open(node: &Node, name: &'static str) -> Self {
        Self::with(node, name, FieldTable::default()).await
    }

    /// A queue with these arguments.
    pub(crate) async fn with(node: &Node, name: &'static str, arguments: FieldTable) -> Self {
        let connection = Connection::connect(&node.url(), ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        declare(&channel, name, arguments).await;
        declare(&channel, &format!("{name}-dead"), FieldTable::default()).await;
        Self { node: node.clone(), channel, _connection: connection, name }
    }

    /// The texts among the headers of the first dead letter.
    pub(crate) async fn letter(&self) -> BTreeMap<String, String> {
        let name = format!("{}-dead", self.name);
        let letter = self.channel.basic_get(name.as_str().into(), BasicGetOptions::default()).await.unwrap();
        let properties = letter.unwrap().delivery.properties;
        let headers = properties.headers().as_ref().unwrap().inner().iter();
        let texts = headers.filter_map(|(name, value)| match value {
            AMQPValue::LongString(text) => Some((name.to_string(), text.to_string())),
            _ => None,
        });
        texts.collect()
    }

    pub(crate) fn source(&self) -> Source {
        Source::new(self.node.url(), self.name, format!("{}-dead", self.name))
    }
}

impl Queue for Orders {
    async fn send(&self, body: &str) {
        let mut headers = FieldTable::default();
        headers.insert("Trace".into(), AMQPValue::LongString(format!("t-{body}").into()));
        let properties = BasicProperties::default().with_headers(headers).with_delivery_mode(2);
        let (name, options) = (self.name.into(), BasicPublishOptions::default());
        let sent = self.channel.basic_publish("".into(), name, options, body.as_bytes(), properties);
        sent.await.unwrap().await.unwrap();
    }

    async fn work(&self, shutdown: BoxFuture<'static, ()>, settings: Settings, handler: Handler) -> Summary {
        let handle =
            |order: &idem_rabbitmq::Received| handler(String::from_utf8(order.data.clone()).unwrap());
        self.source().run_until(shutdown, settings, handle).await.unwrap()
    }

    async fn left(&self) -> Option<u64> {
        Some(self.node.left(self.name).await)
    }

    async fn letters(&self) -> Vec<StoredLetter> {
        self.source().dead_letters().await.unwrap()
    }

    async fn redrive(&self, redrive: Redrive) -> RedriveSummary {
        self.source().redrive(redrive).await.unwrap()
    }

    async fn dead_letters(&self) -> Vec<DeadLetter> {
        let (name, mut letters) = (format!("{}-dead", self.name), Vec::new());
        let get = || self.channel.basic_get(name.as_str().into(), BasicGetOptions::default());
        while let Some(letter) = get().await.unwrap() {
            let letter = letter.delivery;
            let header = |name: &str| {
                let headers = letter.properties.headers().as_ref()?;
                match headers.inner().get(name)? {
                    AMQPValue::LongString(text) => Some(text.to_string()),
                    _ => None,
                }
            };
            letters.push(DeadLetter {
                body: String::from_utf8(letter.data.clone()).unwrap(),
                reason: header(REASON).unwrap_or_default(),
                trace: header("Trace").unwrap_or_default(),
                error: header(ERROR).unwrap_or_default(),
            });
        }
        letters
    }
}

impl Losing for Orders {
    async fn lose_dead_letters(&self) {
        let name = format!("{}-dead", self.name);
        self.channel.queue_delete(name.as_str().into(), QueueDeleteOptions::default()).await.unwrap();
    }

    async fn restore_dead_letters(&self) {
        declare(&self.channel, &format!("{}-dead", self.name), FieldTable::default()).await;
    }
}

pub(crate) async fn declare(channel: &Channel, queue: &str, arguments: FieldTable) {
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(queue.into(), durable, arguments).await.unwrap();
}
