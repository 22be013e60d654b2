//! A stream, its consumer and its dead letters.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::stream::{self, RetentionPolicy};
use async_nats::jetstream::{self, Context};
use async_nats::{HeaderMap, header::IntoHeaderName as _};
use futures_util::future::BoxFuture;
use idem_broker_tests::{DeadLetter, Handler, Losing, Queue, Settings};
use idem_messages::{ERROR, REASON, Redrive, RedriveSummary, StoredLetter};
use idem_nats::{Source, Summary};

pub(crate) const ACK_WAIT: Duration = Duration::from_secs(5);

pub(crate) struct Orders {
    pub(crate) jetstream: Context,
    pub(crate) consumer: PullConsumer,
    pub(crate) name: &'static str,
}

impl Orders {
    pub(crate) async fn open(url: &str, name: &'static str) -> Self {
        Self::with(url, name, pull::Config::default()).await
    }

    /// With these settings of the consumer.
    pub(crate) async fn with(url: &str, name: &'static str, settings: pull::Config) -> Self {
        let jetstream = jetstream::new(async_nats::connect(url).await.unwrap());
        jetstream.create_stream(dead_letters(name)).await.unwrap();
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
        Self { jetstream, consumer, name }
    }

    pub(crate) fn source(&self) -> Source {
        Source::new(self.jetstream.clone(), self.consumer.clone(), format!("{}-dead", self.name))
    }
}

fn dead_letters(name: &str) -> stream::Config {
    stream::Config { name: format!("{name}-dead"), ..stream::Config::default() }
}

impl Queue for Orders {
    async fn send(&self, body: &str) {
        let mut headers = HeaderMap::new();
        headers.insert("Trace", format!("t-{body}"));
        // The server would refuse a copy with this header in another stream.
        headers.insert("Nats-Expected-Stream", self.name);
        let (subject, payload) = (self.name.to_owned(), body.to_owned().into());
        self.jetstream.publish_with_headers(subject, headers, payload).await.unwrap().await.unwrap();
    }

    async fn work(&self, shutdown: BoxFuture<'static, ()>, settings: Settings, handler: Handler) -> Summary {
        let handle =
            |order: &idem_nats::Received| handler(String::from_utf8(order.payload.to_vec()).unwrap());
        self.source().run_until(shutdown, settings, handle).await.unwrap()
    }

    async fn left(&self) -> Option<u64> {
        let mut stream = self.jetstream.get_stream(self.name).await.ok()?;
        Some(stream.info().await.ok()?.state.messages)
    }

    async fn letters(&self) -> Vec<StoredLetter> {
        self.source().dead_letters().await.unwrap()
    }

    async fn redrive(&self, redrive: Redrive) -> RedriveSummary {
        self.source().redrive(redrive).await.unwrap()
    }

    async fn dead_letters(&self) -> Vec<DeadLetter> {
        let mut stream = self.jetstream.get_stream(format!("{}-dead", self.name)).await.unwrap();
        let mut letters = Vec::new();
        for number in 1..=stream.info().await.unwrap().state.messages {
            let letter = stream.get_raw_message(number).await.unwrap();
            let header = |name: &str| {
                letter.headers.get(name.into_header_name()).map(ToString::to_string).unwrap_or_default()
            };
            let body = String::from_utf8(letter.payload.to_vec()).unwrap();
            let (error, decoded) = (header(ERROR), percent_encoding::percent_decode_str);
            assert!(error.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{error}");
            let error = decoded(&error).decode_utf8().unwrap().into_owned();
            letters.push(DeadLetter { body, reason: header(REASON), trace: header("Trace"), error });
        }
        letters
    }
}

impl Losing for Orders {
    async fn lose_dead_letters(&self) {
        self.jetstream.delete_stream(format!("{}-dead", self.name)).await.unwrap();
    }

    async fn restore_dead_letters(&self) {
        self.jetstream.create_stream(dead_letters(self.name)).await.unwrap();
    }
}
