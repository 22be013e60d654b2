//! A substitute for Lambda's event source mapping, for a queue on this machine: receives messages, calls the function with
//! them, and deletes those that the function did not report as failed.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lambda_events::event::sqs::SqsEvent;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName};
use idem::lambda::batch::BatchResponse;
use lambda_runtime::tower::Service;
use lambda_runtime::{Context, LambdaEvent};
use serde_json::json;

use crate::Failure;

/// How many messages are received at once: the most that SQS allows.
pub const BATCH: i32 = 10;

/// The function's timeout.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A queue and its client.
#[derive(Clone, Debug)]
pub struct Mapping {
    sqs: Client,
    queue: String,
}

/// A batch of messages, and the function's response.
#[derive(Debug)]
pub struct Delivery {
    /// The messages, in the queue's order.
    pub messages: Vec<Message>,
    /// The identifiers of the messages that the function reported as failed.
    pub response: BatchResponse,
}

impl Mapping {
    /// A mapping of the queue with this URL.
    #[must_use]
    pub const fn new(sqs: Client, queue: String) -> Self {
        Self { sqs, queue }
    }

    /// Receives messages, and waits a second for them.
    ///
    /// # Errors
    ///
    /// Those of the queue.
    pub async fn take(&self) -> Result<Vec<Message>, Failure> {
        let take = self.sqs.receive_message().queue_url(&self.queue).max_number_of_messages(BATCH);
        let take = take.message_system_attribute_names(MessageSystemAttributeName::All).wait_time_seconds(1);
        Ok(take.send().await?.messages.unwrap_or_default())
    }

    /// Calls the function with messages, and deletes those that it did not report as failed.
    ///
    /// # Errors
    ///
    /// Those of the queue and of the function.
    pub async fn deliver<F>(&self, messages: Vec<Message>, function: &mut F) -> Result<Delivery, Failure>
    where
        F: Service<LambdaEvent<SqsEvent>, Response = BatchResponse, Error: Into<Failure>>,
    {
        let called = function.call(LambdaEvent::new(event(&messages)?, context()?)).await;
        let response = called.map_err(Into::into)?;
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

fn context() -> Result<Context, Failure> {
    let deadline = (SystemTime::now() + TIMEOUT).duration_since(UNIX_EPOCH)?;
    let mut context = Context::default();
    context.deadline = u64::try_from(deadline.as_millis())?;
    Ok(context)
}
