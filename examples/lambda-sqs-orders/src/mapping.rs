//! What Lambda's event source mapping does for a queue: takes messages off it, calls the function with
//! them, and deletes those that the function did not report as failed.
//!
//! Lambda brings its own; this one is for a queue on this machine.

use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_config::SdkConfig;
use aws_lambda_events::event::sqs::SqsEvent;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName};
use idem::lambda::batch::BatchResponse;
use lambda_runtime::tower::Service;
use lambda_runtime::{Context, LambdaEvent};
use serde_json::json;

/// How many messages are taken at once: the most that SQS gives.
pub const BATCH: i32 = 10;

/// How long the function has.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A queue and who asks it.
#[derive(Clone, Debug)]
pub struct Mapping {
    sqs: Client,
    queue: String,
}

/// What was on the queue, and what the function said of it.
#[derive(Debug)]
pub struct Delivery {
    /// The messages, in the queue's order.
    pub messages: Vec<Message>,
    /// Those of them that it reported as failed, by their identifiers.
    pub response: BatchResponse,
}

impl Mapping {
    /// Of the queue with this URL.
    #[must_use]
    pub const fn new(sqs: Client, queue: String) -> Self {
        Self { sqs, queue }
    }

    /// Waits a second for messages.
    ///
    /// # Errors
    ///
    /// The queue's.
    pub async fn take(&self) -> Result<Vec<Message>, Box<dyn Error>> {
        let take = self.sqs.receive_message().queue_url(&self.queue).max_number_of_messages(BATCH);
        let take = take.message_system_attribute_names(MessageSystemAttributeName::All).wait_time_seconds(1);
        Ok(take.send().await?.messages.unwrap_or_default())
    }

    /// Calls the function with messages, and deletes what it did not report as failed.
    ///
    /// # Errors
    ///
    /// The queue's, and the function's.
    pub async fn deliver<F>(
        &self,
        messages: Vec<Message>,
        function: &mut F,
    ) -> Result<Delivery, Box<dyn Error>>
    where
        F: Service<LambdaEvent<SqsEvent>, Response = BatchResponse, Error: Error + 'static>,
    {
        let response = function.call(LambdaEvent::new(event(&messages)?, context()?)).await?;
        let failures = response.batch_item_failures.iter();
        let failed: BTreeSet<&str> = failures.map(|failure| failure.item_identifier.as_str()).collect();
        for message in &messages {
            if !failed.contains(message.message_id.as_deref().unwrap_or_default()) {
                let delete = self.sqs.delete_message().queue_url(&self.queue);
                delete.set_receipt_handle(message.receipt_handle.clone()).send().await?;
            }
        }
        Ok(Delivery { messages, response })
    }
}

fn event(messages: &[Message]) -> Result<SqsEvent, serde_json::Error> {
    let record = |message: &Message| {
        let attributes: HashMap<_, _> =
            message.attributes.iter().flatten().map(|(k, v)| (k.as_str(), v)).collect();
        json!({
            "messageId": message.message_id,
            "receiptHandle": message.receipt_handle,
            "body": message.body,
            "attributes": attributes,
            "messageAttributes": {},
            "eventSource": "aws:sqs",
        })
    };
    serde_json::from_value(json!({ "Records": messages.iter().map(record).collect::<Vec<_>>() }))
}

fn context() -> Result<Context, Box<dyn Error>> {
    let deadline = (SystemTime::now() + TIMEOUT).duration_since(UNIX_EPOCH)?;
    let mut context = Context::default();
    context.deadline = u64::try_from(deadline.as_millis())?;
    Ok(context)
}

/// The configuration for an emulator at this URL.
pub async fn emulated(url: &str) -> SdkConfig {
    aws_config::defaults(aws_config::BehaviorVersion::latest())
        .endpoint_url(url)
        .region("us-east-1")
        .test_credentials()
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .load()
        .await
}
