//! A batch of records, each made an idempotent call for.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use crate::engine::{self, HeldKeys, Observation, with_deadline};
use crate::message::report::{self, About};
use crate::message::{Cause, Choose, Disposition, Gate, Judged, Proposed, Reason, Tries, settle_by};

/// A record of a batch.
pub trait BatchRecord {
    /// Its identifier at the event source: the message's id, or the sequence number.
    fn identifier(&self) -> Option<&str>;

    /// Records of one group are done one after another, in their order in the batch. `None` for one
    /// that is in no order.
    fn group(&self) -> Option<String>;

    /// How often the event source has delivered it, this time included, where it says so. `None`, unless it is
    /// overridden.
    fn deliveries(&self) -> Option<u32> {
        None
    }

    /// Whether its event source delivers nothing behind it before it is done with: a shard of a stream.
    fn blocks_its_source(&self) -> bool {
        false
    }
}

/// The response to Lambda: the records to be delivered again. All others are settled.
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
    /// Ten groups at a time, no deadline, rejected records left to the queue's redrive policy.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<'b, R: BatchRecord + Clone, C> Batch<'b, R, C> {
    /// When Lambda ends the function: `context.deadline()` of `lambda_runtime`. No lease reaches beyond it, so the
    /// function that gets the record next does not wait for one that has ended.
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

    /// Records still in work this long before the deadline are dropped and their keys released, which leaves time
    /// for the response; 500 ms unless set.
    pub fn cut_off(mut self, before: Duration) -> Self {
        self.cut_off = before;
        self
    }

    /// Has the handler's error choose what becomes of its record, as
    /// [`settle_with`](crate::message::settle_with) does: a closure, or
    /// [`Dispose::disposition`](crate::message::Dispose::disposition). So a record that cannot be read is
    /// rejected, instead of coming again. For an error without an idempotent call, `attempt` is how often the
    /// event source has delivered the record, where it says so.
    pub fn dispose<F>(self, choose: F) -> Batch<'b, R, F> {
        let Self { deadline, concurrency, stop_taking, cut_off, rejected, .. } = self;
        Batch { deadline, concurrency, stop_taking, cut_off, choose, rejected }
    }

    /// What becomes of a record that is rejected, such as one whose call failed for good: it may be sent
    /// on, and then acknowledged. Unless set, it is reported as failed, and left to the queue's redrive policy.
    ///
    /// On a FIFO queue, send it on: its group waits until it is gone. Later messages of the group are delivered with
    /// it, count these deliveries, and would follow it to the dead-letter queue.
    ///
    /// On a stream (Kinesis, DynamoDB), set this: a stream has no redrive policy. A rejected record that is
    /// reported as failed stops its shard until it expires, a day or more, unless the event source mapping has a
    /// `MaximumRetryAttempts` and a destination for failures. Without this each such record is an error event,
    /// `record_stops_shard`.
    pub fn on_reject<F>(mut self, rejected: impl Fn(R, Reason) -> F + Send + Sync + 'b) -> Self
    where
        F: Future<Output = OnReject> + Send + 'b,
    {
        self.rejected = Some(Box::new(move |record, reason| Box::pin(rejected(record, reason))));
        self
    }

    /// Makes a call for each record, and says which are to be delivered again.
    ///
    /// Replays count as success, and a call in flight elsewhere as one to be delivered again; a duplicate in the
    /// same batch waits for the first. Records of one group are done in order, up to the first that is to be
    /// delivered again: it and what comes after it in its group are reported. A handler that panics fails its own
    /// record only.
    ///
    /// Where the store fails and a [`deadline`](Self::deadline) is set, records are tried again with growing
    /// pauses until [`stop_taking`](Self::stop_taking) before it. Without a deadline they are reported at once.
    ///
    /// Lambda freezes a function that has answered, so where a deadline is set, it waits until
    /// [`cut_off`](Self::cut_off) before it for what is still to be recorded or released, as [`drain`](crate::drain)
    /// does; what is left then is in the event `not_drained`.
    ///
    /// All run in the caller's task: nothing need be `Send`, and a handler that blocks holds up the others.
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
        let run = &Run { handler, held: Arc::default(), gate: Gate::new() };
        let mut ended = stream::iter(groups)
            .map(|group| async move { self.in_order(group, run).await })
            .buffer_unordered(self.concurrency);
        while let Some(left) = ended.next().await {
            for place in left {
                failed[place] = true;
            }
        }
        // Lambda freezes what goes on after the answer. Without a deadline nobody knows how long there is.
        if let Some(left) = self.left() {
            report::drained(engine::drain(left.saturating_sub(self.cut_off)).await);
        }
        let failures = identifiers.into_iter().zip(failed).filter(|(_, failed)| *failed);
        BatchResponse {
            batch_item_failures: failures
                .map(|(identifier, _)| BatchItemFailure { item_identifier: identifier.unwrap_or_default() })
                .collect(),
        }
    }

    /// Does the records of one group, and gives the places of those to be delivered again.
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

    /// Whether the record is done with.
    async fn one<H, F, T, E>(&self, record: R, run: &Run<H>) -> bool
    where
        H: Fn(R) -> F,
        F: Future<Output = Result<T, E>>,
        C: Choose<E>,
    {
        if self.is_late() {
            return false;
        }
        let mut about = About { id: record.identifier().map(str::to_owned), key: None };
        let tries = Tries { number: record.deliveries().unwrap_or(1).max(1), most: u32::MAX };
        let working = AssertUnwindSafe(self.within(self.work(record, run, tries, &mut about))).catch_unwind();
        match working.await {
            Ok(done) => done == Some(true),
            Err(_) => {
                report::panicked(&about, tries.number, tries.proposed(Reason::Panicked));
                false
            }
        }
    }

    /// The same, once it has begun.
    async fn work<H, F, T, E>(&self, record: R, run: &Run<H>, tries: Tries, about: &mut About) -> bool
    where
        H: Fn(R) -> F,
        F: Future<Output = Result<T, E>>,
        C: Choose<E>,
    {
        let mut pauses = Gate::pauses();
        loop {
            // A copy: whether the record is needed again is known only when its handler has ended.
            let judged = run.handle(record.clone(), tries, &self.choose, about).await;
            match (judged.cause, &about.key) {
                (Cause::InFlight, Some(key)) if run.held.holds(key) => {
                    run.held.freed(key).await;
                    continue;
                }
                (Cause::Store | Cause::Misconfigured, _) if self.deadline.is_some() => {
                    report::held(about, judged.cause, run.gate.close(), false);
                    run.gate.wait(&mut pauses).await;
                    if self.is_late() {
                        return false;
                    }
                    continue;
                }
                (Cause::Unclaimed | Cause::Store | Cause::Misconfigured, _) => {}
                _ if run.gate.open() => report::released(),
                _ => {}
            }
            report::settled(about, judged.cause, judged.attempt, judged.disposition);
            return match (judged.disposition, &self.rejected) {
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

    /// Whether no record is begun any more.
    fn is_late(&self) -> bool {
        self.left().is_some_and(|left| left <= self.stop_taking)
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

/// What the records of one batch share.
struct Run<H> {
    handler: H,
    held: Arc<HeldKeys>,
    gate: Gate,
}

impl<H> Run<H> {
    async fn handle<R, C, F, T, E>(
        &self,
        record: R,
        tries: Tries,
        choose: &C,
        about: &mut About,
    ) -> Judged<()>
    where
        H: Fn(R) -> F,
        F: Future<Output = Result<T, E>>,
        C: Choose<E>,
    {
        let handling = Handling { observation: Arc::new(Observation::of_handler(&self.held, None)), about };
        let choose = |error: &E, attempt, proposed| choose.choose(error, attempt, proposed);
        let call = async { (self.handler)(record).await };
        settle_by(&handling.observation, call, tries, choose).await.without_value()
    }
}

/// A handler that runs. However it ends, its keys are not held any more.
struct Handling<'a> {
    observation: Arc<Observation>,
    about: &'a mut About,
}

impl Drop for Handling<'_> {
    fn drop(&mut self) {
        self.about.key = self.observation.key();
        self.observation.let_go();
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
