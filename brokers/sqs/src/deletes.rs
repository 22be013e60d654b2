//! Deletions, ten in a request.

use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::DeleteMessageBatchRequestEntry;
use futures_util::future::join_all;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Mutex, oneshot};
use tokio::time::timeout;

use crate::Error;
use crate::failed::failed;

/// How many fit in a request.
const MOST: usize = 10;

/// How long the first of a request waits for others.
const GATHERING: Duration = Duration::from_millis(5);

/// How many requests are under way at a time.
const REQUESTS: usize = 4;

const DOING: &str = "delete the message";

/// A message that is to be deleted, and who waits for it.
pub(crate) struct Delete {
    pub(crate) receipt: String,
    pub(crate) answer: oneshot::Sender<Result<(), Error>>,
}

/// Deletes what comes.
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

    /// Until every sender is gone.
    pub(crate) async fn run(self) {
        let requests = (0..REQUESTS).map(|_| async {
            while let Some(batch) = self.gather().await {
                self.delete(batch).await;
            }
        });
        join_all(requests).await;
    }

    /// What is to go in one request; `None` when nothing comes any more.
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
        let told = match self.request(&batch).await {
            Ok(refused) => refused,
            Err(error) => return all(batch, &error.to_string()),
        };
        for (number, Delete { answer, .. }) in batch.into_iter().enumerate() {
            let refused = told.iter().find(|(id, _)| *id == number.to_string());
            // Who waited may be gone.
            let _ = answer.send(match refused {
                Some((_, why)) => Err(Error::new(DOING, why.clone())),
                None => Ok(()),
            });
        }
    }

    /// Those that SQS refused, and why.
    async fn request(&self, batch: &[Delete]) -> Result<Vec<(String, String)>, Error> {
        let mut request = self.client.delete_message_batch().queue_url(&self.queue);
        for (number, Delete { receipt, .. }) in batch.iter().enumerate() {
            let entry =
                DeleteMessageBatchRequestEntry::builder().id(number.to_string()).receipt_handle(receipt);
            request = request.entries(entry.build().map_err(failed(DOING))?);
        }
        let told = request.send().await.map_err(failed(DOING))?;
        let refused = told.failed.into_iter().map(|refused| {
            let why = refused.message.unwrap_or_default();
            (refused.id, format!("{}: {why}", refused.code))
        });
        Ok(refused.collect())
    }
}

fn all(batch: Vec<Delete>, error: &str) {
    for Delete { answer, .. } in batch {
        let _ = answer.send(Err(Error::new(DOING, error)));
    }
}
