//! A stream, its consumer and its dead letters.

use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::{PullConsumer, pull};
use futures_util::future::BoxFuture;
use idem_broker_tests::{Delivered, Handler, Queue, Settings, nats};
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
        let settings = pull::Config { ack_wait: ACK_WAIT, ..settings };
        let (jetstream, consumer) = nats::open(url, name, settings).await.unwrap();
        Self { jetstream, consumer, name, dead: format!("{name}-dead") }
    }
}

impl Queue for Orders {
    type Source = Source;

    fn source(&self) -> Source {
        Source::new(self.jetstream.clone(), self.consumer.clone(), &self.dead)
    }

    async fn send(&self, body: &str) {
        nats::send(&self.jetstream, self.name, body).await.unwrap();
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
        nats::left(&self.jetstream, self.name).await.ok()
    }
}
