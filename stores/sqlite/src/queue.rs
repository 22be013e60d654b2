//! The queue of operations for the writer, and their answers.
//!
//! Owns the promise that every operation is answered in time, whatever the disk does. If an operation waits too long,
//! the writer fails it, or the watch does if the writer is stuck. It knows nothing about SQLite.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::listing::{List, Page};
use idem_core::protocol::{self, Record, Request, StoredResult};

/// How long the writer may be late before the watch answers instead.
const GRACE: Duration = Duration::from_secs(1);
/// How long a batch may take.
const BATCH_TIME: Duration = Duration::from_secs(4);
/// How often the watch looks while there are operations.
const WATCH_EVERY: Duration = Duration::from_millis(500);

/// An operation for the writer.
pub(super) enum Op {
    Apply(Applying),
    Forget(RecordKey),
    Get(RecordKey),
    Purge(usize),
    List(List),
}

/// A request of the protocol about one record.
pub(super) struct Applying {
    pub(super) key: RecordKey,
    pub(super) request: Request,
    /// Whether a reader found no record, so that there is probably none.
    pub(super) seems_new: bool,
}

impl Op {
    /// The size of its result in bytes.
    fn weight(&self) -> usize {
        match self {
            Self::Apply(Applying { request, .. }) => match request.result() {
                Some(StoredResult::Value(bytes)) => bytes.len(),
                _ => 0,
            },
            _ => 0,
        }
    }

    /// Whether it is left out if nobody waits for its answer. That includes a claim: nobody would use the grant, and
    /// the key would stay claimed until the lease is over.
    const fn is_for_its_answer(&self) -> bool {
        match self {
            Self::Apply(Applying { request, .. }) => matches!(request, Request::Claim(_)),
            Self::Get(_) | Self::List(_) => true,
            Self::Forget(_) | Self::Purge(_) => false,
        }
    }
}

/// The answer to an operation.
pub(super) enum Answer {
    Applied(protocol::Answer),
    Forget(bool),
    Get(Option<Record>),
    Purged(Purged),
    List(Page),
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

/// The channel back to the caller. Only the first answer counts.
#[derive(Clone)]
pub(super) struct Reply(Arc<Mutex<Option<oneshot::Sender<Outcome>>>>);

impl Reply {
    pub(super) fn send(&self, outcome: Outcome) {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(sender) = sender {
            // A caller that went away does not need the answer.
            let _ = sender.send(outcome);
        }
    }

    /// Whether nobody waits for the answer any more.
    fn is_closed(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_none_or(oneshot::Sender::is_closed)
    }
}

/// One operation in the queue.
pub(super) struct Ticket {
    pub(super) op: Op,
    pub(super) reply: Reply,
    deadline: Instant,
}

impl Ticket {
    fn is_pointless(&self) -> bool {
        self.op.is_for_its_answer() && self.reply.is_closed()
    }
}

/// Why the writer woke up.
pub(super) enum Wake {
    /// Operations wait. The first one must be answered by this instant.
    Work(Instant),
    /// Nothing came until the given time.
    Idle,
    /// The store is dropped, and nothing is left to do.
    Closed,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Ticket>,
    /// The operations that the writer executes. `running_until` is when they should be done.
    running: Vec<Reply>,
    running_until: Option<Instant>,
    /// How many operations must wait before the writer is woken; 0 means one.
    wanted: usize,
    closed: bool,
    ended: bool,
    watch_sleeps: bool,
}

/// The waiting operations, and those that the writer executes.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    work: Condvar,
    watch: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues an operation for the writer, which must begin it within `patience`. The receiver fails if the writer ends
    /// before it answers.
    pub(super) fn submit(&self, op: Op, patience: Duration) -> oneshot::Receiver<Outcome> {
        let (sender, receiver) = oneshot::channel();
        let ticket = Ticket {
            op,
            reply: Reply(Arc::new(Mutex::new(Some(sender)))),
            deadline: Instant::now() + patience,
        };
        let mut state = self.lock();
        if !state.ended {
            state.waiting.push_back(ticket);
            if state.waiting.len() == state.wanted.max(1) {
                self.work.notify_one();
            }
            if state.watch_sleeps {
                state.watch_sleeps = false;
                self.watch.notify_one();
            }
        }
        receiver
    }

    /// Waits for work, at most until `idle_until`.
    pub(super) fn wait(&self, idle_until: Option<Instant>) -> Wake {
        let mut state = self.lock();
        loop {
            while state.waiting.front().is_some_and(Ticket::is_pointless) {
                state.waiting.pop_front();
            }
            if let Some(first) = state.waiting.front() {
                return Wake::Work(first.deadline);
            }
            if state.closed {
                return Wake::Closed;
            }
            state = match idle_until.map(|end| end.saturating_duration_since(Instant::now())) {
                None => self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return Wake::Idle,
                Some(left) => self.work.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            };
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
        state.running = batch.iter().map(|ticket| ticket.reply.clone()).collect();
        state.running_until = Some(Instant::now() + BATCH_TIME);
        batch
    }

    /// Notes that the batch is done, and returns how many operations are waiting now.
    pub(super) fn finish(&self) -> usize {
        let mut state = self.lock();
        state.running.clear();
        state.running_until = None;
        state.waiting.len()
    }

    /// Puts operations of which nothing was applied back to the front.
    pub(super) fn put_back(&self, batch: Vec<Ticket>) {
        let mut state = self.lock();
        for ticket in batch.into_iter().rev() {
            state.waiting.push_front(ticket);
        }
        state.running.clear();
        state.running_until = None;
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
            ticket.reply.send(Err(error.clone()));
        }
    }

    /// Lets the writer end after the waiting operations.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.work.notify_all();
        self.watch.notify_all();
    }

    /// Notes that the writer ended for any reason. The operations that it did not answer fail.
    pub(super) fn end(&self) {
        let (waiting, running) = {
            let mut state = self.lock();
            state.closed = true;
            state.ended = true;
            (std::mem::take(&mut state.waiting), std::mem::take(&mut state.running))
        };
        self.watch.notify_all();
        drop((waiting, running));
    }

    /// Answers instead of a stuck writer. Returns when the writer ends.
    pub(super) fn watch(&self) {
        let mut state = self.lock();
        while !state.ended {
            if state.waiting.is_empty() && state.running.is_empty() {
                state.watch_sleeps = true;
                state = self.watch.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.watch_sleeps = false;
                continue;
            }
            state = self.watch.wait_timeout(state, WATCH_EVERY).unwrap_or_else(PoisonError::into_inner).0;
            let now = Instant::now();
            let stuck = state.running_until.is_some_and(|end| end <= now);
            let late = state.waiting.front().is_some_and(|first| first.deadline + GRACE <= now);
            if stuck || late {
                let running = if stuck { std::mem::take(&mut state.running) } else { Vec::new() };
                drop(state);
                self.answer_late(running, now);
                state = self.lock();
            }
        }
    }

    fn answer_late(&self, running: Vec<Reply>, now: Instant) {
        const STUCK: &str = "the disk did not finish what came before in time; look into the system's log, or ask for less at once";
        for reply in running {
            reply.send(Err(StoreError::outcome_unknown(STUCK)));
        }
        if let Some(due) = now.checked_sub(GRACE) {
            self.fail_due(due, &StoreError::unavailable(STUCK));
        }
    }
}
