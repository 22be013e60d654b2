//! Waiting for replicas: operations are sent in batches (on a cluster, one by one), and one `WAIT` follows
//! each batch.
//!
//! `WAIT` blocks its connection, for its whole timeout if a replica is gone. So replication uses a separate
//! connection, and the operations that arrive meanwhile form the next batch. If each operation had its own
//! `WAIT`, it would wait for all earlier operations.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::sync::{mpsc, oneshot};

use super::connection::{Connection, Node};
use super::scripts::Request;
use idem_core::StoreError;
use idem_store_kit::own_runtime::{apart, own_runtime};
use idem_store_kit::retry::retried;

/// Upper limit of the operations in one batch.
const MOST: usize = 64;
/// Approximate upper limit of the bytes in one batch.
const MOST_BYTES: usize = 4 << 20;

/// How many replicas must have the written data, and how long to wait for them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replicas {
    pub(super) count: u32,
    pub(super) timeout: Duration,
}

/// An answer, and how many replicas have the data that the answer reports.
type Replicated = Result<(Value, u32), StoreError>;

type Waiting = (Request, oneshot::Sender<Replicated>);

/// Sends the operations of one store that wait for replicas.
pub(super) struct Replication {
    connection: Connection,
    replicas: Replicas,
    waiting: mpsc::UnboundedSender<Waiting>,
}

impl Replication {
    /// `connection` must not be used for anything else.
    pub(super) fn new(connection: Connection, replicas: Replicas) -> Result<Self, StoreError> {
        let (waiting, arriving) = mpsc::unbounded_channel();
        own_runtime()?.spawn(serve(connection.clone(), replicas, arriving));
        Ok(Self { connection, replicas, waiting })
    }

    /// Sends a request, and retries until there is an answer or the time is over. Succeeds only if enough
    /// replicas have the data that the answer reports.
    pub(super) async fn ask(
        self: &Arc<Self>,
        key: Vec<u8>,
        request: Request,
        time: Duration,
    ) -> Result<Value, StoreError> {
        let Replicas { count, timeout } = self.replicas;
        let (replication, mut next) = (self.clone(), Some(request.clone()));
        // If the server does not know the script, its answer counts as a transient error. So the request is
        // sent again, with the script's text.
        let asking = apart(async move {
            let ask =
                || replication.ask_once(&key, next.take().unwrap_or_else(|| request.clone().with_body()));
            retried(time, ask).await
        });
        match asking.await? {
            (answer, have) if have >= count => Ok(answer),
            (_, have) => Err(StoreError::outcome_unknown(format!(
                "{have} of {count} replicas acknowledged it within {timeout:?}"
            ))),
        }
    }

    async fn ask_once(&self, key: &[u8], request: Request) -> Replicated {
        if self.connection.is_cluster() {
            // In a cluster, each key belongs to one node, and each node has its own replicas, so operations
            // are sent one by one.
            let mut answers = send(&self.connection, &[request], Node::OfKey(key), self.replicas).await;
            return answers.pop().unwrap_or_else(|| Err(unanswered()));
        }
        let (answer, answered) = oneshot::channel();
        // If the task that serves the request is gone, `answer` is dropped, which ends the wait.
        let _ = self.waiting.send((request, answer));
        answered.await.unwrap_or_else(|_| Err(unanswered()))
    }
}

/// Sends the waiting operations, batch by batch, until the store is dropped.
async fn serve(connection: Connection, replicas: Replicas, mut waiting: mpsc::UnboundedReceiver<Waiting>) {
    while let Some(first) = waiting.recv().await {
        let (mut lot, mut bytes) = (Vec::new(), 0);
        let mut next = Some(first);
        while let Some((request, answer)) = next {
            // Operations whose caller went away are left out, because nobody would use a grant.
            if !answer.is_closed() {
                bytes += request.bytes();
                lot.push((request, answer));
            }
            let has_room = lot.len() < MOST && bytes < MOST_BYTES;
            next = if has_room { waiting.try_recv().ok() } else { None };
        }
        let (requests, answers): (Vec<_>, Vec<_>) = lot.into_iter().unzip();
        if requests.is_empty() {
            continue;
        }
        let replicated = send(&connection, &requests, Node::OfSlot(0), replicas).await;
        for (answer, replicated) in answers.into_iter().zip(replicated) {
            // A caller that went away does not need the answer.
            let _ = answer.send(replicated);
        }
    }
}

/// Sends the requests to one node, and waits for its replicas.
async fn send(
    connection: &Connection,
    requests: &[Request],
    node: Node<'_>,
    replicas: Replicas,
) -> Vec<Replicated> {
    match connection.ask_replicated(requests, node, replicas.count, replicas.timeout).await {
        Ok((answers, have)) => answers.into_iter().map(|answer| Ok((answer?, have))).collect(),
        Err(error) => vec![Err(error); requests.len()],
    }
}

fn unanswered() -> StoreError {
    StoreError::outcome_unknown("the work on it was broken off")
}
