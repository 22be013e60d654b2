//! A queue with its dead letters.

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::MessageAttributeValue;
use futures_util::future::BoxFuture;
use idem_broker_tests::sqs::{left, open};
use idem_broker_tests::{Delivered, Handler, Queue, Settings};
use idem_messages::Delivery as _;
use idem_sqs::{Received, Source, Summary};

/// How long SQS hides a message from other workers, in seconds.
const VISIBILITY: &str = "5";

/// The visibility timeout of a dead letter, in seconds. It is short, because a redrive may leave a letter
/// hidden.
const VISIBILITY_OF_LETTERS: &str = "2";

#[derive(Clone)]
pub(crate) struct Orders {
    pub(crate) client: Client,
    pub(crate) queue: String,
    pub(crate) dead: String,
}

impl Orders {
    /// `kind` is the end of the queue names: nothing, or `.fifo`.
    pub(crate) async fn open(url: &str, name: &str, kind: &str) -> Self {
        // SQS allows names of up to 80 characters, and `open` appends text to this name.
        let name: String = name.chars().take(60).collect();
        let visibility = [VISIBILITY, VISIBILITY_OF_LETTERS];
        let (client, queue, dead) = open(url, &name, kind, visibility).await.unwrap();
        Self { client, queue, dead }
    }
}

impl Queue for Orders {
    type Source = Source;

    fn source(&self) -> Source {
        Source::new(self.client.clone(), &self.queue, &self.dead).wait(std::time::Duration::from_secs(1))
    }

    async fn send(&self, body: &str) {
        let text = MessageAttributeValue::builder().data_type("String").string_value(format!("t-{body}"));
        let sent = self.client.send_message().queue_url(&self.queue).message_body(body);
        sent.message_attributes("Trace", text.build().unwrap()).send().await.unwrap();
    }

    async fn work(&self, shutdown: BoxFuture<'static, ()>, settings: Settings, handler: Handler) -> Summary {
        let handle = |order: &Received| {
            let body = order.body().unwrap().to_owned();
            let trace = order.message_attributes().and_then(|all| all.get("Trace")?.string_value.clone());
            handler(Delivered { body, trace, deliveries: order.deliveries().unwrap() })
        };
        self.source().run_until(shutdown, settings, handle).await.unwrap()
    }

    async fn left(&self) -> Option<u64> {
        left(&self.client, &self.queue).await.ok()
    }
}
