//! A queue with its dead letters.

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::types::{MessageAttributeValue, QueueAttributeName};
use futures_util::future::BoxFuture;
use idem_broker_tests::{Delivered, Handler, Queue, Settings};
use idem_messages::Delivery as _;
use idem_sqs::{Received, Source, Summary};

/// How long a message stays hidden from others while a worker has it, in seconds.
const VISIBILITY: &str = "5";

/// The visibility timeout of a dead letter, which a redrive may leave hidden.
const VISIBILITY_OF_LETTERS: &str = "2";

pub(crate) fn client(url: &str) -> Client {
    let config = aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(url)
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "tests"))
        .http_client(aws_smithy_http_client::Builder::new().build_http());
    Client::from_conf(config.build())
}

#[derive(Clone)]
pub(crate) struct Orders {
    pub(crate) client: Client,
    pub(crate) queue: String,
    pub(crate) dead: String,
}

impl Orders {
    /// `kind` is the end of the names: nothing, or `.fifo`.
    pub(crate) async fn open(url: &str, name: &str, kind: &str) -> Self {
        // SQS allows names of 80 characters.
        let name: String = name.chars().take(60).collect();
        let client = client(url);
        let queue = make(&client, &format!("{name}{kind}"), VISIBILITY).await;
        let dead = make(&client, &format!("{name}-dead{kind}"), VISIBILITY_OF_LETTERS).await;
        Self { client, queue, dead }
    }
}

async fn make(client: &Client, name: &str, visibility: &str) -> String {
    let create = client.create_queue().queue_name(name);
    let mut create = create.attributes(QueueAttributeName::VisibilityTimeout, visibility);
    if name.ends_with(".fifo") {
        create = create.attributes(QueueAttributeName::FifoQueue, "true");
        create = create.attributes(QueueAttributeName::ContentBasedDeduplication, "true");
    }
    create.send().await.unwrap().queue_url.unwrap()
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
        let names = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
            QueueAttributeName::ApproximateNumberOfMessagesDelayed,
        ];
        let question = self.client.get_queue_attributes().queue_url(&self.queue);
        let answer = question.set_attribute_names(Some(names.to_vec())).send().await.ok()?;
        let attributes = answer.attributes?;
        Some(names.iter().filter_map(|name| attributes.get(name)?.parse::<u64>().ok()).sum())
    }
}
