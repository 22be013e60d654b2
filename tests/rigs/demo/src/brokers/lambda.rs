//! AWS Lambda on a queue of SQS: the function, and a worker that calls the function with batches of messages
//! as Lambda does.

use std::time::{Duration, SystemTime};

use aws_lambda_events::event::sqs::SqsMessage;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::MessageAttributeValue;
use idem::lambda::batch::{Batch, OnReject};
use idem::message::{REASON, Reason};

use super::sqs::open;
use crate::{Failure, Order, ShipError, Shop};

/// How many messages are received at once: the most that SQS allows.
const BATCH: i32 = 10;

/// The function's timeout.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sends a rejected message to the queue of the dead letters.
async fn set_aside(sqs: &Client, queue: &str, message: SqsMessage, reason: Reason) -> OnReject {
    let text = MessageAttributeValue::builder().data_type("String").string_value(reason.as_str()).build();
    let (Ok(text), Some(body)) = (text, message.body) else { return OnReject::Redrive };
    let send = sqs.send_message().queue_url(queue).message_body(body).message_attributes(REASON, text);
    if send.send().await.is_ok() { OnReject::Acknowledge } else { OnReject::Redrive }
}

/// Receives messages, calls the function with them, and deletes the messages that the function does not
/// report as failed.
async fn deliver(sqs: &Client, orders: &str, dead: &str, shop: &Shop) -> Result<(), Failure> {
    let receive = sqs.receive_message().queue_url(orders).max_number_of_messages(BATCH).wait_time_seconds(1);
    let messages = receive.send().await?.messages.unwrap_or_default();
    let records = messages.iter().map(|message| {
        let mut record = SqsMessage::default();
        (record.message_id, record.body) = (message.message_id.clone(), message.body.clone());
        record
    });
    let batch = Batch::new()
        .deadline(SystemTime::now() + TIMEOUT)
        .dispose(ShipError::disposition)
        .on_reject(|message, reason| set_aside(sqs, dead, message, reason));
    let handler =
        |message: SqsMessage| shop.handle(Order::parse(message.body.unwrap_or_default().as_bytes()));
    let response = batch.process(records.collect(), handler).await;
    let failures = response.batch_item_failures.into_iter();
    let failed: Vec<_> = failures.map(|failure| Some(failure.item_identifier)).collect();
    for message in messages.into_iter().filter(|message| !failed.contains(&message.message_id)) {
        let delete = sqs.delete_message().queue_url(orders);
        delete.set_receipt_handle(message.receipt_handle).send().await?;
    }
    Ok(())
}

/// Does the work of a worker: what AWS Lambda does with a queue.
pub(super) async fn work(
    address: &str,
    shop: &Shop,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let (sqs, orders, dead) = open(address).await?;
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => return Ok(()),
            delivered = deliver(&sqs, &orders, &dead, shop) => delivered?,
        }
    }
}
