//! A stream, its consumer and its dead letters.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::stream::{self, RetentionPolicy};
use async_nats::jetstream::{self, Context};
use futures_util::future::BoxFuture;
use idem_broker_tests::{Delivered, Handler, Queue, Settings};
use idem_messages::Delivery as _;
use idem_nats::{Received, Source, Summary};

pub(crate) const ACK_WAIT: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(crate) struct Orders {
    pub(crate) jetstream: Context,
    pub(crate) consumer: PullConsumer,
    pub(crate) name: &'static str,
    pub(crate) dead: String,
}

impl Orders {
    pub(crate) async fn open(url: &str, name: &'static str) -> Self {
        Self::with(url, name, pull::Config::default()).await
    }

    /// Creates the streams and a consumer with these settings.
    pub(crate) async fn with(url: &str, name: &'static str, settings: pull::Config) -> Self {
        let jetstream = jetstream::new(async_nats::connect(url).await.unwrap());
        let dead = format!("{name}-dead");
        jetstream.create_stream(dead.as_str()).await.unwrap();
        let orders = stream::Config {
            name: name.to_owned(),
            retention: RetentionPolicy::WorkQueue,
            max_age: Duration::from_secs(7 * 24 * 60 * 60),
            ..stream::Config::default()
        };
        let shippers = pull::Config {
            durable_name: Some("shippers".to_owned()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: ACK_WAIT,
            ..settings
        };
        let stream = jetstream.create_stream(orders).await.unwrap();
        let consumer = stream.create_consumer(shippers).await.unwrap();
        Self { jetstream, consumer, name, dead }
    }
}

impl Queue for Orders {
    type Source = Source;

    fn source(&self) -> Source {
        Source::new(self.jetstream.clone(), self.consumer.clone(), &self.dead)
    }

    async fn send(&self, body: &str) {
        let mut headers = HeaderMap::new();
        headers.insert("Trace", format!("t-{body}"));
        // The server would refuse a copy with this header in another stream.
        headers.insert("Nats-Expected-Stream", self.name);
        let (subject, payload) = (self.name.to_owned(), body.to_owned().into());
        self.jetstream.publish_with_headers(subject, headers, payload).await.unwrap().await.unwrap();
    }

    async fn work(&self, shutdown: BoxFuture<'static, ()>, settings: Settings, handler: Handler) -> Summary {
        let handle = |order: &Received| {
            let body = String::from_utf8(order.payload.to_vec()).unwrap();
            let trace = order.headers.as_ref().and_then(|headers| Some(headers.get("Trace")?.to_string()));
            handler(Delivered { body, trace, deliveries: order.deliveries().unwrap() })
        };
        self.source().run_until(shutdown, settings, handle).await.unwrap()
    }

    async fn left(&self) -> Option<u64> {
        let mut stream = self.jetstream.get_stream(self.name).await.ok()?;
        Some(stream.info().await.ok()?.state.messages)
    }
}
