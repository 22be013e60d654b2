//! A batch of records, with one idempotent call for each record.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::fmt::{self, Display};
use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, stream};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::{Consumer, DeadLetter, Delivery, Disposition, Reason, report};
use idem_runtime::with_deadline;

/// A record of a batch.
pub trait BatchRecord {
    /// Whether the event source waits until a record is done before it delivers later records, as a shard of
    /// a stream does.
    const BLOCKS_ITS_SOURCE: bool = false;

    /// The record's identifier in the event source: the message id or the sequence number.
    fn identifier(&self) -> Option<&str>;

    /// The group of the record. Records of one group are processed one after another, in their order in the
    /// batch. `None` for a record without an order.
    fn group(&self) -> Option<String>;

    /// How many times the event source has delivered the record, including this time, if the source reports
    /// it. The default is `None`.
    fn deliveries(&self) -> Option<u32> {
        None
    }
}

/// The response to Lambda: the records that must be delivered again, in the order of the batch. For a queue,
/// Lambda delivers these records again and deletes all others. For a stream, Lambda delivers the first of
/// these records and all later records again, and idem replays the calls that are done. A record without an
/// identifier gets an empty one; Lambda then delivers the whole batch again.
///
/// The event source mapping must have `ReportBatchItemFailures` among its function response types; otherwise
/// Lambda treats any response as success. This applies to queues and to streams.
pub use aws_lambda_events::event::sqs::SqsBatchResponse as BatchResponse;

/// The function for rejected records: see [`Disposition::Reject`].
type Rejected<'b, R> = Box<dyn Fn(R, Reason) -> BoxFuture<'b, OnReject> + Send + Sync + 'b>;

/// What happens to a rejected record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnReject {
    /// The record is reported as failed. After enough deliveries, the queue's own redrive policy moves it to
    /// the dead-letter queue.
    Redrive,
    /// The record is acknowledged.
    Acknowledge,
}

/// How long before the deadline the batch stops starting records.
const STOP_TAKING: Duration = Duration::from_secs(2);

/// How long before the deadline the handlers that still run are dropped. This leaves time for the response.
const CUT_OFF: Duration = Duration::from_millis(500);

/// This time is longer than a function may run, so no time limit of the consumer ends a batch.
const UNLIMITED: Duration = Duration::from_secs(24 * 60 * 60);

/// How a batch is processed.
#[must_use]
pub struct Batch<'b, R, E> {
    deadline: Option<Instant>,
    consumer: Consumer<E>,
    rejected: Option<Rejected<'b, R>>,
}

impl<R, E> Default for Batch<'_, R, E> {
    fn default() -> Self {
        let consumer = Consumer::new().grace(UNLIMITED).drain(UNLIMITED).broker_timeout(UNLIMITED);
        Self { deadline: None, consumer: consumer.max_tries(u32::MAX), rejected: None }
    }
}

impl<'b, R: BatchRecord + Clone, E> Batch<'b, R, E> {
    /// A batch without a deadline. It processes ten groups at a time, and leaves rejected records to the
    /// queue's redrive policy.
    pub fn new() -> Self {
        Self::default()
    }

    /// When Lambda ends the function: `context.deadline()` of `lambda_runtime`. No lease reaches beyond the
    /// deadline, so the next function that gets a record never waits for the lease of an ended function. No
    /// record is started later than 2 s before the deadline. 500 ms before the deadline, handlers that are
    /// still running are dropped and their keys released.
    pub fn deadline(mut self, deadline: SystemTime) -> Self {
        // Lambda gives the deadline as a time of this machine's clock. From here on, only the time left
        // counts.
        let time_left = deadline.duration_since(SystemTime::now()).unwrap_or_default();
        self.deadline = Instant::now().checked_add(time_left);
        self
    }

    /// How many records are processed at a time; at least one, and 10 unless set.
    pub fn concurrency(mut self, records: usize) -> Self {
        self.consumer = self.consumer.concurrency(records);
        self
    }

    /// Lets the error of a handler decide how its record is settled: see
    /// [`Consumer::dispose`](crate::Consumer::dispose). So an unreadable record, for example, can be rejected
    /// instead of delivered again. If the handler made no idempotent call, `attempt` is the number of times
    /// that the event source has delivered the record, if the source reports this number.
    pub fn dispose(
        mut self,
        choose: impl Fn(&E, u32, Disposition) -> Disposition + Send + Sync + 'static,
    ) -> Self {
        self.consumer = self.consumer.dispose(choose);
        self
    }

    /// Sets a function for rejected records, such as records whose call failed for good. The function can
    /// send the record to another place and then acknowledge it. Unless set, a rejected record is reported as
    /// failed and left to the queue's redrive policy.
    ///
    /// On a FIFO queue, send a rejected record to another place, because the record's group waits until the
    /// record is gone. Later messages of the group are delivered together with the record. So their delivery
    /// counts rise, too, and they would follow the record to the dead-letter queue.
    ///
    /// On a stream (Kinesis, DynamoDB), set this function, because a stream has no redrive policy. If a
    /// rejected record is reported as failed, it stops its shard until it expires, after a day or more. Only
    /// a `MaximumRetryAttempts` of the event source mapping, with a destination for failures, prevents this.
    /// Without this function, each such record emits the error event `record_stops_shard`.
    pub fn on_reject<F>(mut self, rejected: impl Fn(R, Reason) -> F + Send + Sync + 'b) -> Self
    where
        F: Future<Output = OnReject> + Send + 'b,
    {
        self.rejected = Some(Box::new(move |record, reason| Box::pin(rejected(record, reason))));
        self
    }

    /// Runs the handler for each record, and returns the records that Lambda must deliver again.
    ///
    /// A replay counts as success. A record whose call is in flight elsewhere is delivered again; a duplicate
    /// in the same batch waits for the first record. Records of one group are processed in order, up to the
    /// first record that must be delivered again. That record and the later records of its group are
    /// reported. A handler that panics fails only its own record.
    ///
    /// If the store fails and a [`deadline`](Self::deadline) is set, records are retried with growing pauses
    /// until 2 s before the deadline. Without a deadline, the records are reported at once.
    ///
    /// Lambda freezes a function that has returned its response. So if a deadline is set, `process` waits, as
    /// [`drain`](idem_runtime::drain) does, until all results are recorded and all claims are released. It
    /// waits until 500 ms before the deadline at most. The event `not_drained` reports the remaining work.
    ///
    /// All handlers run in the caller's task: nothing needs to be `Send`, and a handler that blocks its
    /// thread stops the other handlers, too.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use aws_lambda_events::event::sqs::SqsEvent;
    /// use idem::lambda::batch::Batch;
    /// use idem::{Error, MemoryStore, Operation};
    ///
    /// let store = MemoryStore::new();
    /// let ship = Operation::new("orders.ship");
    /// // As Lambda delivers it: the same order twice.
    /// let event: SqsEvent = serde_json::from_str(
    ///     r#"{"Records": [{"messageId": "m1", "body": "42"}, {"messageId": "m2", "body": "42"}]}"#,
    /// )?;
    /// let response = Batch::new()
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
    pub async fn process<H, F, T>(&self, records: Vec<R>, handler: H) -> BatchResponse
    where
        H: Fn(R) -> F,
        F: Future<Output = Result<T, E>>,
        E: Display,
    {
        let mut failed: Vec<_> =
            records.iter().map(|record| Some(record.identifier().unwrap_or_default().to_owned())).collect();
        let deadline = self.deadline;
        let shared = Shared { done: Mutex::default(), rejected: self.rejected.as_ref(), deadline };
        let (taken, mut messages) = unbounded_channel();
        for group in grouped(records) {
            Message::take(group, &taken, &shared);
        }
        // Drops this sender, so that the stream ends with the last message.
        drop(taken);
        let shutdown = async {
            match deadline {
                Some(deadline) => sleep_until(deadline.checked_sub(STOP_TAKING).unwrap_or(deadline)).await,
                None => pending().await,
            }
        };
        let mut consumer = self.consumer.clone();
        consumer.settings.holds = deadline.is_some();
        let messages =
            stream::poll_fn(move |cx| messages.poll_recv(cx).map(|next| next.map(Ok::<_, Infallible>)));
        let working = consumer
            .run_until(shutdown, messages, |message| within(deadline, handler(message.record.clone())));
        // This future is on the heap, because it contains the caller's handlers.
        let working = Box::pin(working);
        match deadline {
            None => drop(working.await),
            Some(deadline) => {
                let cut_off = deadline.checked_sub(CUT_OFF).unwrap_or(deadline);
                let _ = timeout_at(cut_off, working).await;
                // Waits for work in the background, because Lambda freezes that work after the response.
                // Without a deadline, the batch does not wait, because it does not know for how long.
                let time_left = cut_off.saturating_duration_since(Instant::now());
                report::drained(idem_runtime::drain(time_left).await);
            }
        }
        for place in shared.done.into_inner().unwrap_or_else(PoisonError::into_inner) {
            failed[place] = None;
        }
        let mut response = BatchResponse::default();
        failed.into_iter().flatten().for_each(|identifier| response.add_failure(identifier));
        response
    }
}

impl<R, E> fmt::Debug for Batch<'_, R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// Runs a handler, or the function of `on_reject`. If there is a deadline, no lease of an idempotent call
/// inside `call` reaches beyond the deadline.
async fn within<F: Future>(deadline: Option<Instant>, call: F) -> F::Output {
    match deadline {
        Some(deadline) => with_deadline(deadline, call).await,
        None => call.await,
    }
}

/// The records by group, each with its position in the batch. The groups have the order of their first
/// records.
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

/// A record as the message of a consumer. The next record of its group is taken when this record is done.
struct Message<'p, 'b, R> {
    place: usize,
    record: R,
    /// The later records of the record's group.
    later: Mutex<VecDeque<(usize, R)>>,
    taken: UnboundedSender<Self>,
    shared: &'p Shared<'p, 'b, R>,
}

/// The state that the messages of a batch share.
struct Shared<'p, 'b, R> {
    /// The positions of the records that are done.
    done: Mutex<Vec<usize>>,
    rejected: Option<&'p Rejected<'b, R>>,
    deadline: Option<Instant>,
}

impl<'p, 'b, R> Message<'p, 'b, R> {
    /// Passes the first record of a group to the consumer.
    fn take(mut group: VecDeque<(usize, R)>, taken: &UnboundedSender<Self>, shared: &'p Shared<'p, 'b, R>) {
        let Some((place, record)) = group.pop_front() else { return };
        let message = Self { place, record, later: Mutex::new(group), taken: taken.clone(), shared };
        // If the batch is ending, this fails, and Lambda delivers the record again.
        let _ = taken.send(message);
    }
}

impl<R: BatchRecord + Clone> Delivery for Message<'_, '_, R> {
    type Error = Infallible;

    async fn acknowledge(&self) -> Result<(), Infallible> {
        self.shared.done.lock().unwrap_or_else(PoisonError::into_inner).push(self.place);
        let later = std::mem::take(&mut *self.later.lock().unwrap_or_else(PoisonError::into_inner));
        Self::take(later, &self.taken, self.shared);
        Ok(())
    }

    /// Does nothing, because Lambda delivers the unfinished records again.
    async fn retry(&self, _: Duration) -> Result<(), Infallible> {
        Ok(())
    }

    async fn reject(&self, letter: &DeadLetter) -> Result<(), Infallible> {
        if let Some(rejected) = self.shared.rejected {
            let call = async { rejected(self.record.clone(), letter.reason).await };
            match AssertUnwindSafe(within(self.shared.deadline, call)).catch_unwind().await {
                Ok(OnReject::Acknowledge) => return self.acknowledge().await,
                Ok(OnReject::Redrive) => {}
                Err(_) => tracing::error!(
                    target: "idem", event = "message_panicked", message_id = self.id(),
                    operation = letter.operation, key = letter.key, tries = letter.tries, "`on_reject` panicked"
                ),
            }
        } else if R::BLOCKS_ITS_SOURCE {
            tracing::error!(
                target: "idem", event = "record_stops_shard", message_id = self.id(),
                operation = letter.operation, key = letter.key,
                "a rejected record stops its shard until it expires; set `on_reject`, or `MaximumRetryAttempts`"
            );
        }
        Ok(())
    }

    async fn give_back(&self) -> Result<(), Infallible> {
        Ok(())
    }

    fn deliveries(&self) -> Option<u32> {
        self.record.deliveries()
    }

    fn id(&self) -> Option<String> {
        self.record.identifier().map(str::to_owned)
    }
}
