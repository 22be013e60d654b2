//! The broker of the demo: sets up the queues, and counts their messages.

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::types::{QueueAttributeName, SendMessageBatchRequestEntry};
use idem::message::StoredLetter;
use idem_sqs::{Received, Source};
use idem_test_servers::Aws;

use super::{lambda, letter};
use crate::shop::consumer;
use crate::{Broker, Failure, Kind, Order, Setup, Shop};

/// How long SQS waits for a silent worker before it delivers its message to another one, in seconds.
const VISIBILITY: &str = "3";

const ORDERS: &str = "orders";
const DEAD_LETTERS: &str = "orders-dead";

/// An emulator of SQS that the demo starts.
pub type OnSqs = Emulator<false>;

/// The same, whose messages the workers give to a function as AWS Lambda does.
pub type OnLambda = Emulator<true>;

/// An emulator of SQS, with or without functions of Lambda.
#[derive(Debug)]
pub struct Emulator<const LAMBDA: bool> {
    server: Aws,
    client: Client,
    orders: String,
    dead_letters: String,
}

/// The client, and the queues' URLs. Creates the queues where they are missing.
pub(super) async fn open(endpoint: &str) -> Result<(Client, String, String), Failure> {
    let config = aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(endpoint)
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "demo"))
        .http_client(aws_smithy_http_client::Builder::new().build_http());
    let client = Client::from_conf(config.build());
    let make = async |name: &str| {
        let create = client.create_queue().queue_name(name);
        let queue = create.attributes(QueueAttributeName::VisibilityTimeout, VISIBILITY).send().await?;
        queue.queue_url.ok_or_else(|| Failure::from("SQS gave no URL"))
    };
    let (orders, dead_letters) = (make(ORDERS).await?, make(DEAD_LETTERS).await?);
    Ok((client, orders, dead_letters))
}

impl<const LAMBDA: bool> Broker for Emulator<LAMBDA> {
    const KIND: Kind = if LAMBDA { Kind::Lambda } else { Kind::Sqs };

    const STORE: &'static str = if LAMBDA { "dynamodb" } else { "redis" };

    async fn start(_: &Setup) -> Result<Self, Failure> {
        let server = Aws::start();
        let (client, orders, dead_letters) = open(&server.url()).await?;
        Ok(Self { server, client, orders, dead_letters })
    }

    fn kill(&mut self) {
        self.server.server().signal("-STOP");
    }

    async fn restart(&mut self) -> Result<(), Failure> {
        self.server.server().signal("-CONT");
        Ok(())
    }

    fn address(&self) -> String {
        self.server.url()
    }

    async fn work(address: &str, shop: &Shop, shutdown: impl Future<Output = ()>) -> Result<(), Failure> {
        if LAMBDA {
            return lambda::work(address, shop, shutdown).await;
        }
        let (client, orders, dead_letters) = open(address).await?;
        let source = Source::new(client, orders, dead_letters);
        let handler =
            |message: &Received| shop.handle(Order::parse(message.body().unwrap_or_default().as_bytes()));
        source.run_until(shutdown, consumer(), handler).await?;
        Ok(())
    }

    async fn send(&self, bodies: Vec<Vec<u8>>) -> Result<(), Failure> {
        for bodies in bodies.chunks(10) {
            let mut batch = self.client.send_message_batch().queue_url(&self.orders);
            for (number, body) in bodies.iter().enumerate() {
                let entry = SendMessageBatchRequestEntry::builder().id(number.to_string());
                batch = batch.entries(entry.message_body(String::from_utf8(body.clone())?).build()?);
            }
            batch.send().await?;
        }
        Ok(())
    }

    async fn waiting(&self) -> Result<u64, Failure> {
        let names = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        ];
        let request = self.client.get_queue_attributes().queue_url(&self.orders);
        let response = request.set_attribute_names(Some(names.to_vec())).send().await?;
        let attributes = response.attributes.unwrap_or_default();
        Ok(names.iter().filter_map(|name| attributes.get(name)?.parse::<u64>().ok()).sum())
    }

    async fn dead_letters(&self) -> Result<Vec<StoredLetter>, Failure> {
        let mut letters = Vec::new();
        loop {
            let request =
                self.client.receive_message().queue_url(&self.dead_letters).max_number_of_messages(10);
            // Hides the messages, so that none is counted twice.
            let messages = request.visibility_timeout(60).send().await?.messages.unwrap_or_default();
            if messages.is_empty() {
                return Ok(letters);
            }
            // A message that SQS itself has moved has no reason.
            letters
                .extend(messages.iter().map(|message| letter(message.body().unwrap_or_default().as_bytes())));
        }
    }
}
