//! A batch of records, with one idempotent call for each record.

mod run;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use self::run::Run;
use crate::report::{self, About};
use crate::{Cause, Choose, Disposition, Gate, Proposed, Reason, Tries};
use idem_runtime::with_deadline;

/// A record of a batch.
pub trait BatchRecord {
    /// Its identifier in the event source: the message id or the sequence number.
    fn identifier(&self) -> Option<&str>;

    /// The group of the record. Records of one group are processed one after another, in their order in the batch.
    /// `None` for a record without an order.
    fn group(&self) -> Option<String>;

    /// How many times the event source has delivered the record, including this time, if the source says so. The
    /// default is `None`.
    fn deliveries(&self) -> Option<u32> {
        None
    }

    /// Whether the event source delivers no later record before this one is done, as a shard of a stream does.
    fn blocks_its_source(&self) -> bool {
        false
    }
}

/// The response to Lambda: the records that it must deliver again. All other records are settled.
///
/// The event source mapping must have `ReportBatchItemFailures` among its function response types, or Lambda treats any
/// response as success.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[must_use = "Lambda takes a batch for done unless it gets this"]
pub struct BatchResponse {
    /// The records to deliver again, in the order of the batch.
    pub batch_item_failures: Vec<BatchItemFailure>,
}

/// One record that Lambda must deliver again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchItemFailure {
    /// Its identifier. It is empty for a record without one; Lambda then delivers the whole batch again.
    pub item_identifier: String,
}

/// Makes an idempotent call for each record, and returns which records Lambda must deliver again: [`Batch::process`]
/// with the defaults of [`Batch::new`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use aws_lambda_events::event::sqs::SqsEvent;
/// use idem::lambda::batch;
/// use idem::{Error, MemoryStore, Operation};
///
/// let store = MemoryStore::new();
/// let ship = Operation::new("orders.ship");
/// // As Lambda delivers it: the same order twice.
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

/// The function for rejected records: see [`Disposition::Reject`].
type Rejected<'b, R> = Box<dyn Fn(R, Reason) -> BoxFuture<'b, OnReject> + Send + Sync + 'b>;

/// What happens to a rejected record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnReject {
    /// It is reported as failed. After enough deliveries, the queue's own redrive policy moves it to its dead-letter
    /// queue.
    Redrive,
    /// It is acknowledged.
    Acknowledge,
}

/// How a batch is processed.
#[must_use]
pub struct Batch<'b, R, C = Proposed> {
    deadline: Option<Instant>,
    concurrency: usize,
    stop_taking: Duration,
    cut_off: Duration,
    choose: C,
    rejected: Option<Rejected<'b, R>>,
}

impl<R> Default for Batch<'_, R> {
    fn default() -> Self {
        Self {
            deadline: None,
            concurrency: 10,
            stop_taking: Duration::from_secs(2),
            cut_off: Duration::from_millis(500),
            choose: Proposed,
            rejected: None,
        }
    }
}

impl<R: BatchRecord + Clone> Batch<'_, R> {
    /// Ten groups at a time, no deadline, and rejected records are left to the queue's redrive policy.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<'b, R: BatchRecord + Clone, C> Batch<'b, R, C> {
    /// When Lambda ends the function: `context.deadline()` of `lambda_runtime`. No lease reaches beyond it, so the
    /// function that gets the record next does not wait for one that has ended.
    pub fn deadline(mut self, deadline: SystemTime) -> Self {
        // The deadline is on the clock of this machine, and only the time left counts.
        let time_left = deadline.duration_since(SystemTime::now()).unwrap_or_default();
        self.deadline = Instant::now().checked_add(time_left);
        self
    }

    /// How many records are processed at a time; at least one, and 10 unless set.
    pub fn concurrency(mut self, records: usize) -> Self {
        self.concurrency = records.max(1);
        self
    }

    /// No record is started later than this long before the deadline; 2 s unless set. Lambda delivers the rest again.
    pub fn stop_taking(mut self, before: Duration) -> Self {
        self.stop_taking = before;
        self
    }

    /// This long before the deadline, handlers that are still running are dropped and their keys released, which leaves
    /// time for the response; 500 ms unless set.
    pub fn cut_off(mut self, before: Duration) -> Self {
        self.cut_off = before;
        self
    }

    /// Lets the error of a handler decide how its record is settled: see
    /// [`Consumer::dispose`](crate::Consumer::dispose). With it, for example, an unreadable record can be
    /// rejected instead of delivered again. For an error without an idempotent call, the attempt is how many times the
    /// event source has delivered the record, if the source says so.
    pub fn dispose<E, F>(self, choose: F) -> Batch<'b, R, F>
    where
        F: Fn(&E, u32, Disposition) -> Disposition,
    {
        let Self { deadline, concurrency, stop_taking, cut_off, rejected, .. } = self;
        Batch { deadline, concurrency, stop_taking, cut_off, choose, rejected }
    }

    /// Sets a function for rejected records, such as those whose call failed for good. It can send the record to
    /// another place and then acknowledge it. Unless set, a rejected record is reported as failed and left to the
    /// queue's redrive policy.
    ///
    /// On a FIFO queue, send a rejected record to another place, because its group waits until it is gone. Later
    /// messages of the group are delivered with it, so their delivery counts rise too, and they would follow it to the
    /// dead-letter queue.
    ///
    /// On a stream (Kinesis, DynamoDB), set this function, because a stream has no redrive policy. A rejected record
    /// that is reported as failed stops its shard until the record expires, after a day or more, unless the event
    /// source mapping has a `MaximumRetryAttempts` and a destination for failures. Without this function, each such
    /// record emits the error event `record_stops_shard`.
    pub fn on_reject<F>(mut self, rejected: impl Fn(R, Reason) -> F + Send + Sync + 'b) -> Self
    where
        F: Future<Output = OnReject> + Send + 'b,
    {
        self.rejected = Some(Box::new(move |record, reason| Box::pin(rejected(record, reason))));
        self
    }

    /// Makes a call for each record, and returns which records Lambda must deliver again.
    ///
    /// A replay counts as success. A record whose call is in flight elsewhere is delivered again; a duplicate in the
    /// same batch waits for the first. Records of one group are processed in order, up to the first that must be
    /// delivered again: that record and the later ones of its group are reported. A handler that panics fails only its
    /// own record.
    ///
    /// If the store fails and a [`deadline`](Self::deadline) is set, records are retried with growing pauses until
    /// [`stop_taking`](Self::stop_taking) before the deadline. Without a deadline they are reported at once.
    ///
    /// Lambda freezes a function that has answered. So if a deadline is set, `process` waits until at most
    /// [`cut_off`](Self::cut_off) before the deadline for results to be recorded and claims to be released, as
    /// [`drain`](idem_runtime::drain) does. What is left then is in the event `not_drained`.
    ///
    /// All handlers run in the caller's task: nothing needs to be `Send`, and a handler that blocks holds up the
    /// others.
    pub async fn process<H, F, T, E>(&self, records: Vec<R>, handler: H) -> BatchResponse
    where
        H: Fn(R) -> F,
        F: Future<Output = Result<T, E>>,
        C: Choose<E>,
    {
        let mut failed = vec![false; records.len()];
        let identifiers: Vec<Option<String>> =
            records.iter().map(|record| record.identifier().map(str::to_owned)).collect();
        let groups = grouped(records);
        let run = &Run::new(handler);
        let mut ended = stream::iter(groups)
            .map(|group| async move { self.in_order(group, run).await })
            .buffer_unordered(self.concurrency);
        while let Some(unsettled) = ended.next().await {
            for place in unsettled {
                failed[place] = true;
            }
        }
        // Lambda freezes work that continues after the response. Without a deadline it is not known how much time is
        // left.
        if let Some(time_left) = self.time_left() {
            report::drained(idem_runtime::drain(time_left.saturating_sub(self.cut_off)).await);
        }
        let failures = identifiers.into_iter().zip(failed).filter(|(_, failed)| *failed);
        BatchResponse {
            batch_item_failures: failures
                .map(|(identifier, _)| BatchItemFailure { item_identifier: identifier.unwrap_or_default() })
                .collect(),
        }
    }

    /// Processes the records of one group, and returns the positions of those to deliver again.
    async fn in_order<H, F, T, E>(&self, mut group: VecDeque<(usize, R)>, run: &Run<H>) -> Vec<usize>
    where
        H: Fn(R) -> F,
        F: Future<Output = Result<T, E>>,
        C: Choose<E>,
    {
        while let Some((place, record)) = group.pop_front() {
            if !self.one(record, run).await {
                return std::iter::once(place).chain(group.into_iter().map(|(place, _)| place)).collect();
            }
        }
        Vec::new()
    }

    /// Processes one record, and returns whether it is settled.
    async fn one<H, F, T, E>(&self, record: R, run: &Run<H>) -> bool
    where
        H: Fn(R) -> F,
        F: Future<Output = Result<T, E>>,
        C: Choose<E>,
    {
        if self.is_late() {
            return false;
        }
        let mut about = About { id: record.identifier().map(str::to_owned), ..About::default() };
        let tries = Tries { number: record.deliveries().unwrap_or(1).max(1), limit: u32::MAX };
        let working = AssertUnwindSafe(self.within(self.work(record, run, tries, &mut about))).catch_unwind();
        match working.await {
            Ok(done) => done == Some(true),
            Err(_) => {
                report::panicked(&about, tries.number, tries.proposed(Reason::Panicked));
                false
            }
        }
    }

    /// The same, after the checks, and without handling panics.
    async fn work<H, F, T, E>(&self, record: R, run: &Run<H>, tries: Tries, about: &mut About) -> bool
    where
        H: Fn(R) -> F,
        F: Future<Output = Result<T, E>>,
        C: Choose<E>,
    {
        let mut pauses = Gate::pauses();
        loop {
            // A clone, because the record may be needed again after its handler has ended.
            let (decision, another_ended) = run.handle(record.clone(), tries, &self.choose, about).await;
            match (decision.cause, &about.key) {
                (Cause::InFlight, Some(key)) if another_ended || run.held.holds(key) => {
                    run.held.freed(key).await;
                    continue;
                }
                (Cause::Store, _) if self.deadline.is_some() => {
                    report::held(about, decision.cause, run.gate.close(), false);
                    run.gate.wait(&mut pauses).await;
                    if self.is_late() {
                        return false;
                    }
                    continue;
                }
                (Cause::Unclaimed | Cause::Store | Cause::Misconfigured, _) => {}
                _ => run.gate.open(),
            }
            report::settled(about, decision.cause, decision.attempt, decision.disposition);
            return match (decision.disposition, &self.rejected) {
                (Disposition::Acknowledge, _) => true,
                (Disposition::Retry { .. }, _) => false,
                (Disposition::Reject { reason }, Some(rejected)) => {
                    rejected(record, reason).await == OnReject::Acknowledge
                }
                (Disposition::Reject { .. }, None) => {
                    if record.blocks_its_source() {
                        report::record_stops_shard(about);
                    }
                    false
                }
            };
        }
    }

    /// Whether it is too late to start a record.
    fn is_late(&self) -> bool {
        self.time_left().is_some_and(|time_left| time_left <= self.stop_taking)
    }

    fn time_left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// The result of `call`, if it ends before the cut-off.
    async fn within<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        let Some(deadline) = self.deadline else { return Some(call.await) };
        let cut_off = deadline.checked_sub(self.cut_off).unwrap_or(deadline);
        timeout_at(cut_off, with_deadline(deadline, call)).await.ok()
    }
}

impl<R, C> fmt::Debug for Batch<'_, R, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("deadline", &self.deadline)
            .field("concurrency", &self.concurrency)
            .field("stop_taking", &self.stop_taking)
            .field("cut_off", &self.cut_off)
            .finish_non_exhaustive()
    }
}

/// The records by group, each with its position in the batch. The groups are in the order of their first records.
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
