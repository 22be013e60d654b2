//! The queue of operations for the writer, and their answers.
//!
//! Owns the promise that every operation is answered in time, whatever the disk does. If an operation waits
//! too long, the writer fails it; if the writer is stuck, the caller gives up. This module knows nothing
//! about SQLite.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::timeout;

use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::protocol::{self, Request, StoredResult};
use idem_store_kit::own_runtime::entered;

/// Upper limit of the operations in one batch.
const BATCH: usize = 512;
/// Approximate upper limit of the bytes of results in one batch.
const BATCH_BYTES: usize = 16 * 1024 * 1024;
/// How late the writer may be before a caller gives up.
const GRACE: Duration = Duration::from_secs(1);
/// How long a batch may take before its callers give up.
const BATCH_TIME: Duration = Duration::from_secs(4);
/// How often a caller checks whether to give up.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How many records one operation of a purge deletes at most.
pub(super) const PURGE_BATCH: usize = 512;
/// To collect the expected operations, the writer waits for the duration of a commit divided by this number.
const PATIENCE: u32 = 4;
/// The longest wait for expected operations.
const LONGEST_PATIENCE: Duration = Duration::from_millis(5);
/// The shortest useful wait. Falling asleep and waking up take longer than a shorter wait.
const SHORTEST_PATIENCE: Duration = Duration::from_micros(50);

/// An operation for the writer.
pub(super) enum Op {
    /// A request of the protocol about one record.
    Apply(RecordKey, Request),
    Forget(RecordKey),
    Purge(usize),
}

pub(super) enum Answer {
    Applied(protocol::Answer),
    Forgotten(bool),
    Purged(Purged),
}

/// What a purge did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Purged {
    /// How many records the purge deleted.
    pub(super) count: usize,
    /// Whether the purge has read all records that were due.
    pub(super) all: bool,
}

pub(super) type Outcome = Result<Answer, StoreError>;

/// One operation in the queue.
pub(super) struct Ticket {
    pub(super) op: Op,
    number: u64,
    deadline: Instant,
    reply: oneshot::Sender<Outcome>,
}

impl Ticket {
    /// Whether to leave the operation out, because it is a claim whose answer nobody awaits. Nobody would use
    /// the grant, and the key would stay claimed until the lease is over.
    fn is_pointless(&self) -> bool {
        matches!(self.op, Op::Apply(_, Request::Claim(_))) && self.reply.is_closed()
    }
}

/// How long a batch waits for operations that will probably come soon.
///
/// Callers usually send the next operation soon after an answer. If a transaction begins before these
/// operations arrive, it has few operations, and the others wait for a whole commit. So the writer waits for
/// as many operations as last time, for a part of the time that a commit takes. If the operations do not
/// arrive, little time is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Pace {
    /// How many operations are expected.
    pub(super) expected: usize,
    /// How long to wait for the expected operations.
    pub(super) patience: Duration,
}

impl Pace {
    /// The pace after a commit that took the time `commit`. `operations` is the number of operations in the
    /// commit, plus the operations that wait after it.
    pub(super) fn after(commit: Duration, operations: usize) -> Self {
        let patience = (commit / PATIENCE).min(LONGEST_PATIENCE);
        let is_worth_it = patience >= SHORTEST_PATIENCE;
        let patience = if is_worth_it { patience } else { Duration::ZERO };
        Self { expected: operations.min(BATCH), patience }
    }
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Ticket>,
    /// The number of the last ticket.
    last: u64,
    /// When the running batch began; `None` if no batch runs.
    running_since: Option<Instant>,
    /// How many operations must wait before the writer is woken; 0 means one.
    wanted: usize,
    closed: bool,
    ended: bool,
}

/// The waiting operations.
pub(super) struct Queue {
    /// How long an operation waits for the writer.
    patience: Duration,
    state: Mutex<State>,
    work: Condvar,
}

impl Queue {
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, state: Mutex::default(), work: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes an operation to the writer, which must begin it within the patience of this queue.
    pub(super) fn run(&self, op: Op) -> impl Future<Output = Outcome> + Send {
        // The patience uses a clock that no test pauses.
        entered(Box::pin(async move {
            let give_up_at = Instant::now() + self.patience + GRACE;
            let (number, mut answer) = self.submit(op);
            loop {
                match timeout(LOOK_EVERY, &mut answer).await {
                    Ok(answer) => return answer.unwrap_or_else(|_| Err(ended())),
                    Err(_) => self.give_up(number, give_up_at)?,
                }
            }
        }))
    }

    /// Deletes at most `limit` expired records. Returns how many it deleted.
    pub(super) async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        let mut purged = 0;
        while purged < limit {
            let batch = PURGE_BATCH.min(limit - purged);
            let Answer::Purged(now) = self.run(Op::Purge(batch)).await? else { return Err(ended()) };
            purged += now.count;
            if now.all {
                break;
            }
        }
        Ok(purged)
    }

    /// Queues an operation. The receiver fails if the writer ends before it answers.
    pub(super) fn submit(&self, op: Op) -> (u64, oneshot::Receiver<Outcome>) {
        let (reply, answer) = oneshot::channel();
        let deadline = Instant::now() + self.patience;
        let mut state = self.lock();
        state.last += 1;
        let number = state.last;
        if !state.ended {
            state.waiting.push_back(Ticket { op, number, deadline, reply });
            if state.waiting.len() == state.wanted.max(1) {
                self.work.notify_one();
            }
        }
        (number, answer)
    }

    /// Fails if the writer is stuck. In that case an operation that still waits leaves the queue and is never
    /// executed. If the operation no longer waits, nobody knows whether it was executed.
    fn give_up(&self, number: u64, at: Instant) -> Result<(), StoreError> {
        const STUCK: &str = "the disk did not finish what came before in time; look into the system's log, or ask for less at once";
        let mut state = self.lock();
        match state.waiting.iter().position(|ticket| ticket.number == number) {
            Some(place) if at <= Instant::now() => {
                state.waiting.remove(place);
                Err(StoreError::unavailable(STUCK))
            }
            None if state.running_since.is_some_and(|since| since.elapsed() >= BATCH_TIME) => {
                Err(StoreError::outcome_unknown(STUCK))
            }
            _ => Ok(()),
        }
    }

    /// Waits for work, and then a moment for as many operations as are expected. Returns the time by which
    /// the first operation must begin; `None` if the store is dropped and no operation waits.
    pub(super) fn wait(&self, pace: Pace) -> Option<Instant> {
        let mut state = self.lock();
        let deadline = loop {
            while state.waiting.front().is_some_and(Ticket::is_pointless) {
                state.waiting.pop_front();
            }
            match state.waiting.front() {
                Some(first) => break first.deadline,
                None if state.closed => return None,
                None => state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        };
        let end = Instant::now() + pace.patience;
        while state.waiting.len() < pace.expected && !state.closed {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state.wanted = pace.expected;
            state = self.work.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.wanted = 0;
        Some(deadline)
    }

    /// Takes the next operations for a batch.
    pub(super) fn take(&self) -> Vec<Ticket> {
        let mut state = self.lock();
        let mut batch = Vec::new();
        let mut bytes = 0;
        while batch.len() < BATCH && bytes < BATCH_BYTES {
            let Some(ticket) = state.waiting.pop_front() else {
                break;
            };
            if ticket.is_pointless() {
                continue;
            }
            if let Op::Apply(_, request) = &ticket.op {
                bytes += request.result().map_or(0, StoredResult::size);
            }
            batch.push(ticket);
        }
        state.running_since = Some(Instant::now());
        batch
    }

    /// Answers operations, and ends the batch if one is running. Returns how many other operations are
    /// waiting.
    pub(super) fn finish(&self, answers: impl IntoIterator<Item = (Ticket, Outcome)>) -> usize {
        let waiting = {
            let mut state = self.lock();
            state.running_since = None;
            state.waiting.len()
        };
        // The lock is released first, because a waker may run any code.
        for (ticket, outcome) in answers {
            // A caller that went away does not need the answer.
            let _ = ticket.reply.send(outcome);
        }
        waiting
    }

    /// Ends a batch without any effect: puts its operations back to the front of the queue.
    pub(super) fn put_back(&self, batch: Vec<Ticket>) {
        let mut state = self.lock();
        state.running_since = None;
        for ticket in batch.into_iter().rev() {
            state.waiting.push_front(ticket);
        }
    }

    /// As [`put_back`](Self::put_back), but fails the operation `culprit`.
    pub(super) fn retry_without(&self, mut batch: Vec<Ticket>, culprit: usize, error: StoreError) {
        let culprit = batch.remove(culprit);
        self.put_back(batch);
        self.finish([(culprit, Err(error))]);
    }

    /// Fails the waiting operations whose deadline is over.
    pub(super) fn fail_due(&self, error: &StoreError) {
        let now = Instant::now();
        self.fail(error, |ticket| ticket.deadline <= now);
    }

    pub(super) fn fail_all(&self, error: &StoreError) {
        self.fail(error, |_| true);
    }

    fn fail(&self, error: &StoreError, which: impl Fn(&Ticket) -> bool) {
        let failed = {
            let mut state = self.lock();
            let (failed, kept) = std::mem::take(&mut state.waiting).into_iter().partition::<Vec<_>, _>(which);
            state.waiting = kept.into();
            failed
        };
        self.finish(failed.into_iter().map(|ticket| (ticket, Err(error.clone()))));
    }

    /// Lets the writer end after the waiting operations.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.work.notify_all();
    }

    /// Notes that the writer ended, whatever the reason. Operations without an answer fail.
    pub(super) fn end(&self) {
        let waiting = {
            let mut state = self.lock();
            state.ended = true;
            std::mem::take(&mut state.waiting)
        };
        drop(waiting);
    }
}

/// The error after the writer has ended.
pub(super) fn ended() -> StoreError {
    StoreError::outcome_unknown("the thread that writes to the file ended; open the store again")
}
