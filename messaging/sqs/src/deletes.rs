//! Deletions, up to ten in a request.

use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::DeleteMessageBatchRequestEntry;
use futures_util::StreamExt as _;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::Error;
use crate::failed::failed;

/// The largest number of deletions that SQS accepts in one request.
const MOST: usize = 10;

/// How long a request that is not full waits for further deletions.
const GATHERING: Duration = Duration::from_millis(5);

/// How many requests may be in flight at a time.
const REQUESTS: usize = 4;

const DOING: &str = "delete the message";

/// A message to delete, and the channel for the answer.
pub(crate) struct Delete {
    pub(crate) receipt: String,
    pub(crate) answer: oneshot::Sender<Result<(), Error>>,
}

/// Deletes the messages that arrive, until every sender is dropped.
pub(crate) async fn delete_all(client: Client, queue: String, coming: UnboundedReceiver<Delete>) {
    let batches = UnboundedReceiverStream::new(coming).chunks_timeout(MOST, GATHERING);
    batches.for_each_concurrent(REQUESTS, |batch| delete(&client, &queue, batch)).await;
}

async fn delete(client: &Client, queue: &str, batch: Vec<Delete>) {
    let answer = request(client, queue, &batch).await.map_err(|error| error.to_string());
    for (number, Delete { answer: channel, .. }) in batch.into_iter().enumerate() {
        let number = number.to_string();
        let refusal = match &answer {
            Ok(refusals) => refusals.iter().find(|(id, _)| *id == number).map(|(_, why)| why),
            Err(error) => Some(error),
        };
        // The receiver is gone if the future that acknowledges the message was dropped.
        let _ = channel.send(refusal.map_or(Ok(()), |why| Err(Error::new(DOING, why.clone()))));
    }
}

/// Sends one request. Returns the entries that SQS refused, each with the reason.
async fn request(client: &Client, queue: &str, batch: &[Delete]) -> Result<Vec<(String, String)>, Error> {
    let mut request = client.delete_message_batch().queue_url(queue);
    for (number, Delete { receipt, .. }) in batch.iter().enumerate() {
        let entry = DeleteMessageBatchRequestEntry::builder().id(number.to_string()).receipt_handle(receipt);
        request = request.entries(entry.build().map_err(failed(DOING))?);
    }
    let response = request.send().await.map_err(failed(DOING))?;
    let refused = response.failed.into_iter().map(|refused| {
        let why = refused.message.unwrap_or_default();
        (refused.id, format!("{}: {why}", refused.code))
    });
    Ok(refused.collect())
}
