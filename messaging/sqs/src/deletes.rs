//! Deletions, up to ten in a request.

use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::DeleteMessageBatchRequestEntry;
use futures_util::future::join_all;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Mutex, oneshot};
use tokio::time::timeout;

use crate::Error;
use crate::failed::failed;

/// The most deletions that SQS takes in a request.
const MOST: usize = 10;

/// How long a request that is not full waits for each further deletion.
const GATHERING: Duration = Duration::from_millis(5);

/// How many requests are in flight at a time.
const REQUESTS: usize = 4;

const DOING: &str = "delete the message";

/// A message to delete, and the channel for the answer.
pub(crate) struct Delete {
    pub(crate) receipt: String,
    pub(crate) answer: oneshot::Sender<Result<(), Error>>,
}

/// The worker that deletes messages.
pub(crate) struct Deletes {
    client: Client,
    queue: String,
    coming: Mutex<UnboundedReceiver<Delete>>,
}

impl Deletes {
    pub(crate) fn new(client: Client, queue: String) -> (Self, UnboundedSender<Delete>) {
        let (sender, coming) = unbounded_channel();
        (Self { client, queue, coming: Mutex::new(coming) }, sender)
    }

    /// Runs until every sender is dropped.
    pub(crate) async fn run(self) {
        let requests = (0..REQUESTS).map(|_| async {
            while let Some(batch) = self.gather().await {
                self.delete(batch).await;
            }
        });
        join_all(requests).await;
    }

    /// The deletions of the next request; `None` after the last.
    async fn gather(&self) -> Option<Vec<Delete>> {
        let mut coming = self.coming.lock().await;
        let mut batch = vec![coming.recv().await?];
        while batch.len() < MOST
            && let Ok(Some(next)) = timeout(GATHERING, coming.recv()).await
        {
            batch.push(next);
        }
        Some(batch)
    }

    async fn delete(&self, batch: Vec<Delete>) {
        let refusals = match self.request(&batch).await {
            Ok(refusals) => refusals,
            Err(error) => return all(batch, &error.to_string()),
        };
        for (number, Delete { answer, .. }) in batch.into_iter().enumerate() {
            let refused = refusals.iter().find(|(id, _)| *id == number.to_string());
            // The receiver may be gone: its handler was dropped.
            let _ = answer.send(match refused {
                Some((_, why)) => Err(Error::new(DOING, why.clone())),
                None => Ok(()),
            });
        }
    }

    /// Sends one request. Returns the entries that SQS refused, each with the reason.
    async fn request(&self, batch: &[Delete]) -> Result<Vec<(String, String)>, Error> {
        let mut request = self.client.delete_message_batch().queue_url(&self.queue);
        for (number, Delete { receipt, .. }) in batch.iter().enumerate() {
            let entry =
                DeleteMessageBatchRequestEntry::builder().id(number.to_string()).receipt_handle(receipt);
            request = request.entries(entry.build().map_err(failed(DOING))?);
        }
        let response = request.send().await.map_err(failed(DOING))?;
        let refused = response.failed.into_iter().map(|refused| {
            let why = refused.message.unwrap_or_default();
            (refused.id, format!("{}: {why}", refused.code))
        });
        Ok(refused.collect())
    }
}

/// Answers all deletions of a batch with this error.
fn all(batch: Vec<Delete>, error: &str) {
    for Delete { answer, .. } in batch {
        let _ = answer.send(Err(Error::new(DOING, error)));
    }
}
