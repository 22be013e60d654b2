//! Waiting for replicas: operations are sent in batches, each with one `WAIT` after it.
//!
//! `WAIT` blocks its connection, for its whole timeout if a replica is gone. So it has a separate connection, and the
//! operations that come meanwhile form the next batch. With one `WAIT` each, every operation would wait for all before
//! it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Value;
use tokio::sync::oneshot;

use super::connection::{Connection, Node};
use super::scripts::Request;
use idem_core::StoreError;

/// Upper limit of the operations in one batch.
const MOST: usize = 64;
/// Approximate upper limit of the bytes in one batch.
const MOST_BYTES: usize = 4 << 20;

/// How many replicas must have a claim and a result, and how long to wait for them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replicas {
    pub(super) count: u32,
    pub(super) timeout: Duration,
}

/// An answer, and how many replicas have the data behind it.
pub(super) type Replicated = Result<(Value, u32), StoreError>;

struct Waiting {
    request: Request,
    answer: oneshot::Sender<Replicated>,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Waiting>,
    /// Whether there is a task that sends the batches.
    is_served: bool,
}

/// Sends the operations of one store that wait for replicas.
pub(super) struct Replication {
    connection: Connection,
    pub(super) replicas: Replicas,
    queue: Mutex<Queue>,
}

impl Replication {
    /// `connection` must not be used for anything else.
    pub(super) fn new(connection: Connection, replicas: Replicas) -> Self {
        Self { connection, replicas, queue: Mutex::default() }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request once. Runs in the stores' own runtime.
    pub(super) async fn ask(self: &Arc<Self>, key: &[u8], request: &Request) -> Replicated {
        if self.connection.is_cluster() {
            // In a cluster, each key has its node and each node its replicas, so operations are sent one by one.
            let mut answers = self.send(std::slice::from_ref(request), Node::OfKey(key)).await;
            return answers.pop().unwrap_or_else(|| Err(unanswered()));
        }
        let (answer, answered) = oneshot::channel();
        let is_served = {
            let mut queue = self.queue();
            queue.waiting.push(Waiting { request: request.clone(), answer });
            std::mem::replace(&mut queue.is_served, true)
        };
        if !is_served {
            tokio::spawn(self.clone().serve());
        }
        answered.await.unwrap_or_else(|_| Err(unanswered()))
    }

    /// Sends the waiting operations, batch by batch, until none waits.
    async fn serve(self: Arc<Self>) {
        while let Some(lot) = self.next_lot() {
            let (requests, answers): (Vec<Request>, Vec<_>) =
                lot.into_iter().map(|waiting| (waiting.request, waiting.answer)).unzip();
            let replicated = self.send(&requests, Node::OfSlot(0)).await;
            for (answer, replicated) in answers.into_iter().zip(replicated) {
                // A caller that went away does not need the answer.
                let _ = answer.send(replicated);
            }
        }
    }

    fn next_lot(&self) -> Option<Vec<Waiting>> {
        let mut queue = self.queue();
        // Operations whose caller went away are left out, because nobody would use a grant.
        queue.waiting.retain(|waiting| !waiting.answer.is_closed());
        let mut bytes = 0;
        let fits = |waiting: &&Waiting| {
            let has_room = bytes < MOST_BYTES;
            bytes += waiting.request.bytes();
            has_room
        };
        let count = queue.waiting.iter().take(MOST).take_while(fits).count();
        queue.is_served = count > 0;
        (count > 0).then(|| queue.waiting.drain(..count).collect())
    }

    /// Sends the requests to one node, and waits for its replicas.
    async fn send(&self, requests: &[Request], node: Node<'_>) -> Vec<Replicated> {
        let Replicas { count, timeout } = self.replicas;
        match self.connection.ask_replicated(requests, node, count, timeout).await {
            Ok((answers, have)) => {
                answers.into_iter().map(|answer| answer.map(|answer| (answer, have))).collect()
            }
            Err(error) => requests.iter().map(|_| Err(error.clone())).collect(),
        }
    }
}

fn unanswered() -> StoreError {
    StoreError::outcome_unknown("the work on it was broken off")
}
