//! A queue with its dead letters.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use idem_broker_tests::rabbitmq::{connect, declare, send};
use idem_broker_tests::{Delivered, Failed, Handler, Queue, Settings};
use idem_rabbitmq::{Received, Source, Summary};
use idem_test_servers::RabbitMq;
use lapin::options::{BasicGetOptions, BasicPublishOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection};

/// A node that several threads can use, because RabbitMQ's command-line tool takes a second, and the worker
/// must run meanwhile.
#[derive(Clone)]
pub(crate) struct Node(Arc<Mutex<RabbitMq>>);

impl Node {
    pub(crate) fn start() -> Self {
        Self(Arc::new(Mutex::new(RabbitMq::start())))
    }

    pub(crate) fn url(&self) -> String {
        self.0.lock().unwrap().url()
    }

    /// Adds a user who may declare only names of this pattern. Returns the user's URL.
    pub(crate) fn user(&self, name: &str, may_declare: &str) -> String {
        self.0.lock().unwrap().user(name, may_declare)
    }

    async fn blocking<T: Send + 'static>(&self, work: impl FnOnce(&mut RabbitMq) -> T + Send + 'static) -> T {
        let node = self.0.clone();
        tokio::task::spawn_blocking(move || work(&mut node.lock().unwrap())).await.unwrap()
    }

    /// Raises the alarm that blocks publishers, or ends it.
    pub(crate) async fn alarm(&self, is_raised: bool) {
        self.blocking(move |node| node.alarm(is_raised)).await;
    }

    /// Kills the node and starts it again with its queues.
    pub(crate) async fn restart(&self) {
        let restart = |node: &mut RabbitMq| {
            node.remember_queues();
            node.server().kill();
            node.server().restart();
        };
        self.blocking(restart).await;
    }

    /// How many messages are in a queue and its delay queues, including messages that a worker holds.
    pub(crate) async fn left(&self, name: &'static str) -> u64 {
        self.blocking(move |node| node.messages(name)).await
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

    /// Declares a queue with these arguments.
    pub(crate) async fn with(node: &Node, name: &'static str, arguments: FieldTable) -> Self {
        println!("{name}");
        let (connection, channel) = connect(&node.url()).await.unwrap();
        declare(&channel, name, arguments).await.unwrap();
        declare(&channel, &format!("{name}-dead"), FieldTable::default()).await.unwrap();
        Self { node: node.clone(), channel, _connection: connection, name }
    }

    /// Sends a message without headers.
    pub(crate) async fn publish(&self, exchange: &str, key: &str, body: &[u8]) {
        let (options, properties) = (BasicPublishOptions::default(), BasicProperties::default());
        let sent = self.channel.basic_publish(exchange.into(), key.into(), options, body, properties);
        sent.await.unwrap().await.unwrap();
    }

    /// The text headers of the first dead letter.
    pub(crate) async fn letter(&self) -> BTreeMap<String, String> {
        let name = format!("{}-dead", self.name);
        let letter = self.channel.basic_get(name.as_str().into(), BasicGetOptions::default()).await.unwrap();
        texts(&letter.unwrap().delivery.properties)
    }
}

/// The text headers of a message.
fn texts(properties: &BasicProperties) -> BTreeMap<String, String> {
    let headers = properties.headers().iter().flat_map(|headers| headers.inner());
    let texts = headers.filter_map(|(name, value)| match value {
        AMQPValue::LongString(text) => Some((name.to_string(), text.to_string())),
        _ => None,
    });
    texts.collect()
}

/// The error text of a source that does not start.
pub(crate) async fn refusal(source: Source) -> String {
    let run = source.run(Settings::new(), |_: &Received| ready(Ok::<_, Failed>(())));
    let refused = tokio::time::timeout(Duration::from_secs(20), run).await.expect("it is refused");
    refused.unwrap_err().to_string()
}

impl Queue for Orders {
    type Source = Source;

    fn source(&self) -> Source {
        Source::new(self.node.url(), self.name, format!("{}-dead", self.name))
    }

    async fn send(&self, body: &str) {
        send(&self.channel, self.name, body).await.unwrap();
    }

    async fn work(&self, shutdown: BoxFuture<'static, ()>, settings: Settings, handler: Handler) -> Summary {
        let handle = |order: &Received| {
            let body = String::from_utf8(order.data.clone()).unwrap();
            let trace = texts(&order.properties).remove("Trace");
            handler(Delivered { body, trace, deliveries: 1 })
        };
        self.source().run_until(shutdown, settings, handle).await.unwrap()
    }

    async fn left(&self) -> Option<u64> {
        Some(self.node.left(self.name).await)
    }
}
