//! The queue of operations for the writer, and their answers.
//!
//! Owns the promise that every operation is answered in time, whatever the disk does: if it waits too long, the writer fails it,
//! or its caller gives up if the writer is stuck. It knows nothing about SQLite.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::timeout;

use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::protocol::{self, Request, StoredResult};

/// How long the writer may be late before a caller gives up.
const GRACE: Duration = Duration::from_secs(1);
/// How long a batch may take.
const BATCH_TIME: Duration = Duration::from_secs(4);
/// How often a caller looks whether to give up.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// An operation for the writer.
pub(super) enum Op {
    /// A request of the protocol about one record.
    Apply(RecordKey, Request),
    Forget(RecordKey),
    Purge(usize),
}

impl Op {
    /// The size of its result in bytes.
    fn weight(&self) -> usize {
        match self {
            Self::Apply(_, request) => request.result().map_or(0, StoredResult::size),
            _ => 0,
        }
    }

    /// Whether it is left out if nobody waits for its answer: nobody would use the grant, and the key would stay
    /// claimed until the lease is over.
    const fn is_claim(&self) -> bool {
        matches!(self, Self::Apply(_, Request::Claim(_)))
    }
}

/// The answer to an operation.
pub(super) enum Answer {
    Applied(protocol::Answer),
    Forgotten(bool),
    Purged(Purged),
}

/// What a purge did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Purged {
    /// How many records it deleted.
    pub(super) count: usize,
    /// Whether it looked at all that were due.
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
    fn is_pointless(&self) -> bool {
        self.op.is_claim() && self.reply.is_closed()
    }

    pub(super) fn answer(self, outcome: Outcome) {
        // A caller that went away does not need the answer.
        let _ = self.reply.send(outcome);
    }
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Ticket>,
    /// The number of the last ticket.
    last: u64,
    /// Since when the writer executes a batch.
    running_since: Option<Instant>,
    /// How many operations must wait before the writer is woken; 0 means one.
    wanted: usize,
    closed: bool,
    ended: bool,
}

/// The waiting operations.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    work: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the writer execute an operation, which it must begin within `patience`.
    pub(super) async fn run(&self, op: Op, patience: Duration) -> Outcome {
        let give_up_at = Instant::now() + patience + GRACE;
        let (number, mut answer) = self.submit(op, patience);
        loop {
            match timeout(LOOK_EVERY, &mut answer).await {
                Ok(answer) => return answer.unwrap_or_else(|_| Err(ended())),
                Err(_) => self.give_up(number, give_up_at)?,
            }
        }
    }

    /// Queues an operation. The receiver fails if the writer ends before it answers.
    pub(super) fn submit(&self, op: Op, patience: Duration) -> (u64, oneshot::Receiver<Outcome>) {
        let (reply, answer) = oneshot::channel();
        let mut state = self.lock();
        state.last += 1;
        let number = state.last;
        if !state.ended {
            state.waiting.push_back(Ticket { op, number, deadline: Instant::now() + patience, reply });
            if state.waiting.len() == state.wanted.max(1) {
                self.work.notify_one();
            }
        }
        (number, answer)
    }

    /// Fails if the writer is stuck: then the operation is not executed any more, or nobody knows whether it was.
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

    /// Waits for work. Returns by when the first operation must be answered; nothing if the store is dropped,
    /// and nothing is left to do.
    pub(super) fn wait(&self) -> Option<Instant> {
        let mut state = self.lock();
        loop {
            while state.waiting.front().is_some_and(Ticket::is_pointless) {
                state.waiting.pop_front();
            }
            match state.waiting.front() {
                Some(first) => return Some(first.deadline),
                None if state.closed => return None,
                None => state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Waits until `count` operations are in the queue, at most until `end`.
    pub(super) fn gather(&self, count: usize, end: Instant) {
        let mut state = self.lock();
        while state.waiting.len() < count && !state.closed {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state.wanted = count;
            state = self.work.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.wanted = 0;
    }

    /// How many operations the writer is waiting for.
    #[cfg(test)]
    pub(super) fn wanted(&self) -> usize {
        self.lock().wanted
    }

    /// Takes the next operations for a batch: at most `most`, and about `bytes` bytes of results.
    pub(super) fn take(&self, most: usize, bytes: usize) -> Vec<Ticket> {
        let mut state = self.lock();
        let mut batch = Vec::new();
        let mut weight = 0;
        while batch.len() < most && weight < bytes {
            let Some(ticket) = state.waiting.pop_front() else {
                break;
            };
            if !ticket.is_pointless() {
                weight += ticket.op.weight();
                batch.push(ticket);
            }
        }
        state.running_since = Some(Instant::now());
        batch
    }

    /// Notes that the batch is done, and returns how many operations are waiting now.
    pub(super) fn finish(&self) -> usize {
        let mut state = self.lock();
        state.running_since = None;
        state.waiting.len()
    }

    /// Puts operations of which nothing was applied back to the front.
    pub(super) fn put_back(&self, batch: Vec<Ticket>) {
        let mut state = self.lock();
        for ticket in batch.into_iter().rev() {
            state.waiting.push_front(ticket);
        }
        state.running_since = None;
    }

    /// Fails the waiting operations whose time is over at `now`.
    pub(super) fn fail_due(&self, now: Instant, error: &StoreError) {
        self.fail(error, |ticket| ticket.deadline <= now);
    }

    /// Fails all waiting operations.
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
        // Outside the lock, because a waker may run any code.
        for ticket in failed {
            ticket.answer(Err(error.clone()));
        }
    }

    /// Lets the writer end after the waiting operations.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.work.notify_all();
    }

    /// Notes that the writer ended for any reason. The operations that it did not answer fail.
    pub(super) fn end(&self) {
        let waiting = {
            let mut state = self.lock();
            state.closed = true;
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
