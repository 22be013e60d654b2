//! A batch of records, each made an idempotent call for.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::ready;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use crate::context::with_deadline;
use crate::message::{Disposition, Reason, settle};

/// A record of a batch.
pub trait BatchRecord {
    /// What the event source knows it by: the message's id, or the sequence number.
    fn identifier(&self) -> Option<&str>;

    /// Records of one group are done one after another, in their order in the batch. `None` for one
    /// that is in no order.
    fn group(&self) -> Option<String>;
}

/// What Lambda is told of a batch: the records that it is to deliver again. Everything else is done
/// with.
///
/// The event source mapping must have `ReportBatchItemFailures` among its function response types, or
/// Lambda takes any response for success.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[must_use = "Lambda takes a batch for done unless it gets this"]
pub struct BatchResponse {
    /// The records to be delivered again, in the order of the batch.
    pub batch_item_failures: Vec<BatchItemFailure>,
}

/// One record to be delivered again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchItemFailure {
    /// Its identifier; empty for a record that has none, by which Lambda delivers the whole batch again.
    pub item_identifier: String,
}

/// Makes an idempotent call for each record, and says which are to be delivered again: as
/// [`Batch::process`] with what [`Batch::new`] sets.
///
/// ```
/// # use idem_runtime as idem;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use aws_lambda_events::event::sqs::SqsEvent;
/// use idem::lambda::batch;
/// use idem::{Error, MemoryStore, Operation};
///
/// let store = MemoryStore::new();
/// let ship = Operation::new("orders.ship");
/// // As Lambda gives it: the same order twice.
/// let event: SqsEvent = serde_json::from_str(
///     r#"{"Records": [{"messageId": "m1", "body": "42"}, {"messageId": "m2", "body": "42"}]}"#,
/// )?;
/// let response = batch::Batch::new()
///     .concurrency(1)
///     .process(event.records, |message| {
///         let order = message.body.unwrap_or_default();
///         let (ship, store) = (&ship, &store);
///         async move { ship.run(store, order, || async { Ok::<_, Error>(()) }).await }
///     })
///     .await;
/// assert!(response.batch_item_failures.is_empty());
/// # Ok(())
/// # }
/// ```
pub async fn process<R, H, F, T, E>(records: Vec<R>, handler: H) -> BatchResponse
where
    R: BatchRecord + Clone,
    H: Fn(R) -> F,
    F: Future<Output = Result<T, E>>,
{
    Batch::new().process(records, handler).await
}

/// What is done with a record that is rejected: see [`Disposition::Reject`].
type Rejected<'b, R> = Box<dyn Fn(R, Reason) -> BoxFuture<'b, OnReject> + Send + Sync + 'b>;

/// What becomes of a rejected record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnReject {
    /// It is reported as failed, until the queue's own redrive policy moves it to its dead-letter queue.
    Redrive,
    /// It is done with.
    Acknowledge,
}

/// How a batch is done.
#[must_use]
pub struct Batch<'b, R> {
    deadline: Option<Instant>,
    concurrency: usize,
    stop_taking: Duration,
    cut_off: Duration,
    rejected: Rejected<'b, R>,
}

impl<R> Default for Batch<'_, R> {
    fn default() -> Self {
        Self {
            deadline: None,
            concurrency: 10,
            stop_taking: Duration::from_secs(2),
            cut_off: Duration::from_millis(500),
            rejected: Box::new(|_, _| Box::pin(ready(OnReject::Redrive))),
        }
    }
}

impl<'b, R: BatchRecord + Clone> Batch<'b, R> {
    /// Ten groups at a time, no deadline, rejected records left to the queue's redrive policy.
    pub fn new() -> Self {
        Self::default()
    }

    /// When the function is ended: `context.deadline()` of `lambda_runtime`. No lease reaches beyond it,
    /// so that who is given a record next need not wait for a function that cannot be there any more.
    pub fn deadline(mut self, deadline: SystemTime) -> Self {
        // Of the machine that will end us; only how long that is counts.
        let left = deadline.duration_since(SystemTime::now()).unwrap_or_default();
        self.deadline = Instant::now().checked_add(left);
        self
    }

    /// How many records are in work at a time; at least one, and 10 unless set.
    pub fn concurrency(mut self, records: usize) -> Self {
        self.concurrency = records.max(1);
        self
    }

    /// No record is begun with less than this before the deadline; 2 s unless set. They are delivered
    /// again.
    pub fn stop_taking(mut self, before: Duration) -> Self {
        self.stop_taking = before;
        self
    }

    /// What is in work this long before the deadline is dropped, its key released, so that there is time
    /// to say what is done; 500 ms unless set.
    pub fn cut_off(mut self, before: Duration) -> Self {
        self.cut_off = before;
        self
    }

    /// What becomes of a record that is rejected, such as one whose call failed for good: it may be sent
    /// on, and then acknowledged. Unless set, it is left to the queue's redrive policy.
    ///
    /// On a FIFO queue, send it on: until it is gone its group stands still, and what stands behind it there
    /// is delivered with it, counts these deliveries, and would follow it to the dead-letter queue.
    pub fn on_reject<F>(mut self, rejected: impl Fn(R, Reason) -> F + Send + Sync + 'b) -> Self
    where
        F: Future<Output = OnReject> + Send + 'b,
    {
        self.rejected = Box::new(move |record, reason| Box::pin(rejected(record, reason)));
        self
    }

    /// Makes a call for each record, and says which are to be delivered again.
    ///
    /// Replays count as success, and a call in flight elsewhere as one to be delivered again. Records of
    /// one group are done in order, up to the first that is to be delivered again: it and what comes after
    /// it in its group are reported. A handler that panics fails its own record only.
    ///
    /// All run in the caller's task: nothing need be `Send`, and a handler that blocks holds up the others.
    pub async fn process<H, F, T, E>(&self, records: Vec<R>, handler: H) -> BatchResponse
    where
        H: Fn(R) -> F,
        F: Future<Output = Result<T, E>>,
    {
        let mut failed = vec![false; records.len()];
        let identifiers: Vec<Option<String>> =
            records.iter().map(|record| record.identifier().map(str::to_owned)).collect();
        let groups = grouped(records);
        let handler = &handler;
        let mut ended = stream::iter(groups)
            .map(|group| async move { self.in_order(group, handler).await })
            .buffer_unordered(self.concurrency);
        while let Some(left) = ended.next().await {
            for place in left {
                failed[place] = true;
            }
        }
        let failures = identifiers.into_iter().zip(failed).filter(|(_, failed)| *failed);
        BatchResponse {
            batch_item_failures: failures
                .map(|(identifier, _)| BatchItemFailure { item_identifier: identifier.unwrap_or_default() })
                .collect(),
        }
    }

    /// Does the records of one group, and gives the places of those to be delivered again.
    async fn in_order<H, F, T, E>(&self, mut group: VecDeque<(usize, R)>, handler: &H) -> Vec<usize>
    where
        H: Fn(R) -> F,
        F: Future<Output = Result<T, E>>,
    {
        while let Some((place, record)) = group.pop_front() {
            if !self.one(record, handler).await {
                return std::iter::once(place).chain(group.into_iter().map(|(place, _)| place)).collect();
            }
        }
        Vec::new()
    }

    /// Whether the record is done with.
    async fn one<H, F, T, E>(&self, record: R, handler: &H) -> bool
    where
        H: Fn(R) -> F,
        F: Future<Output = Result<T, E>>,
    {
        if self.left().is_some_and(|left| left <= self.stop_taking) {
            return false;
        }
        let work = async {
            match settle(handler(record.clone())).await.disposition {
                Disposition::Acknowledge => true,
                Disposition::Retry { .. } => false,
                Disposition::Reject { reason } => {
                    (self.rejected)(record, reason).await == OnReject::Acknowledge
                }
            }
        };
        let ended = AssertUnwindSafe(self.within(work)).catch_unwind().await;
        ended.is_ok_and(|done| done == Some(true))
    }

    fn left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// What `call` gives, if it does before it is cut off.
    async fn within<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        let Some(deadline) = self.deadline else { return Some(call.await) };
        let cut_off = deadline.checked_sub(self.cut_off).unwrap_or(deadline);
        timeout_at(cut_off, with_deadline(deadline, call)).await.ok()
    }
}

impl<R> fmt::Debug for Batch<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("deadline", &self.deadline)
            .field("concurrency", &self.concurrency)
            .field("stop_taking", &self.stop_taking)
            .field("cut_off", &self.cut_off)
            .finish_non_exhaustive()
    }
}

/// The records by group, each with its place in the batch, groups in the order they first come up.
fn grouped<R: BatchRecord>(records: Vec<R>) -> Vec<VecDeque<(usize, R)>> {
    let mut groups: Vec<VecDeque<(usize, R)>> = Vec::new();
    let mut known = HashMap::new();
    for (place, record) in records.into_iter().enumerate() {
        let index = match record.group() {
            Some(group) => *known.entry(group).or_insert(groups.len()),
            None => groups.len(),
        };
        match groups.get_mut(index) {
            Some(group) => group.push_back((place, record)),
            None => groups.push(VecDeque::from([(place, record)])),
        }
    }
    groups
}
