//! What waits for a connection, and the workers that have one.
//!
//! Operations that wait at the same moment travel together: a worker that is free takes all of one kind.
//! One that comes alone finds a worker idle and is not delayed. Workers live in the stores' own runtime,
//! so that no caller's runtime can hold them up or take them along when it ends (decision 0001).

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout};

use super::worker;
use crate::error::StoreError;
use crate::key::RecordKey;
use crate::protocol::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Record, Release, ReleaseAnswer, Renew, RenewAnswer,
    Resolution, ResolveAnswer, StoredResult,
};
use crate::store::own_runtime::own_runtime;

/// How many operations travel together at the most, and about how many bytes of results.
const MOST: usize = 256;
const MOST_BYTES: usize = 1 << 20;
/// A worker that had nothing to do for this long closes its connection.
const IDLE: Duration = Duration::from_secs(60);

/// What is asked.
#[derive(Debug)]
pub(super) enum Op {
    Claim(Claim),
    Renew(Renew),
    Complete(Complete),
    Release(Release),
    Resolve(Resolution),
    Get,
    Forget,
}

/// What is answered.
#[derive(Debug)]
pub(super) enum Answer {
    Claim(ClaimAnswer),
    Renew(RenewAnswer),
    Complete(CompleteAnswer),
    Release(ReleaseAnswer),
    Resolve(ResolveAnswer),
    Get(Option<Record>),
    Forget(bool),
}

/// What is asked, of which key.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) key: RecordKey,
    pub(super) op: Op,
}

/// Operations of one kind travel in one statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Claims,
    Renewals,
    Completions,
    /// Judged on what is read, and then written.
    Judged,
    Reads,
    /// One by one.
    Single,
}

const KINDS: [Kind; 6] =
    [Kind::Claims, Kind::Renewals, Kind::Completions, Kind::Judged, Kind::Reads, Kind::Single];

impl Op {
    const fn kind(&self) -> Kind {
        match self {
            Self::Claim(_) => Kind::Claims,
            Self::Renew(_) => Kind::Renewals,
            Self::Complete(_) => Kind::Completions,
            Self::Release(_) | Self::Resolve(_) => Kind::Judged,
            Self::Get => Kind::Reads,
            Self::Forget => Kind::Single,
        }
    }

    fn weight(&self) -> usize {
        match self {
            Self::Complete(Complete { result: StoredResult::Value(bytes), .. })
            | Self::Resolve(Resolution::Record(_, StoredResult::Value(bytes))) => bytes.len(),
            _ => 0,
        }
    }
}

/// One operation that waits for its answer.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) asked: Arc<Asked>,
    /// Until when it may be begun.
    pub(super) deadline: Instant,
    number: u64,
    reply: oneshot::Sender<Result<Answer, StoreError>>,
}

impl Ticket {
    pub(super) fn answer(self, answer: Result<Answer, StoreError>) {
        // Nobody may be waiting any more.
        let _ = self.reply.send(answer);
    }

    fn is_pointless(&self) -> bool {
        self.reply.is_closed()
    }
}

#[derive(Default)]
struct Waiting {
    tickets: [VecDeque<Ticket>; KINDS.len()],
    /// Workers without work; the last one to rest is woken first, so that those not needed end.
    idle: Vec<Arc<Notify>>,
    workers: usize,
    next_number: u64,
    closed: bool,
}

/// The queue of one store.
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    most_workers: usize,
    /// How long an operation waits, and then how long it may take.
    time: Duration,
    worker: worker::Setting,
}

/// What a worker is to do.
pub(super) struct Batch {
    pub(super) kind: Kind,
    pub(super) tickets: Vec<Ticket>,
}

impl Queue {
    pub(super) fn new(worker: worker::Setting, most_workers: usize, time: Duration) -> Self {
        Self { waiting: Mutex::default(), most_workers, time, worker }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) const fn time(&self) -> Duration {
        self.time
    }

    /// Asks once.
    pub(super) async fn ask(self: &Arc<Self>, asked: Arc<Asked>) -> Result<Answer, StoreError> {
        let (reply, answered) = oneshot::channel();
        self.submit(asked, reply)?;
        match answered.await {
            Ok(answer) => answer,
            Err(_) => Err(StoreError::outcome_unknown("the work on it was broken off")),
        }
    }

    fn submit(
        self: &Arc<Self>,
        asked: Arc<Asked>,
        reply: oneshot::Sender<Result<Answer, StoreError>>,
    ) -> Result<(), StoreError> {
        let runtime = own_runtime()?;
        let deadline = Instant::now() + self.time;
        let mut waiting = self.lock();
        let number = waiting.next_number;
        waiting.next_number += 1;
        let kind = asked.op.kind();
        waiting.tickets[kind as usize].push_back(Ticket { asked, deadline, number, reply });
        if let Some(idle) = waiting.idle.pop() {
            drop(waiting);
            idle.notify_one();
        } else if waiting.workers < self.most_workers {
            waiting.workers += 1;
            drop(waiting);
            let present = Present(self.clone());
            runtime.spawn(async move { worker::work(&present.0, &present.0.worker).await });
        }
        Ok(())
    }

    /// The next work, or `None` when there is none for long or for ever.
    pub(super) async fn next(&self) -> Option<Batch> {
        let rest = Arc::new(Notify::new());
        loop {
            {
                let mut waiting = self.lock();
                if let Some(batch) = waiting.take() {
                    return Some(batch);
                }
                if waiting.closed {
                    return None;
                }
                waiting.idle.push(rest.clone());
            }
            if timeout(IDLE, rest.notified()).await.is_err() {
                let mut waiting = self.lock();
                let before = waiting.idle.len();
                waiting.idle.retain(|idle| !Arc::ptr_eq(idle, &rest));
                // Not among the idle any more: somebody has just woken it.
                if waiting.idle.len() < before {
                    return None;
                }
            }
        }
    }

    /// Lets the workers end when they have done what waits.
    pub(super) fn close(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
        let idle = std::mem::take(&mut waiting.idle);
        drop(waiting);
        for worker in idle {
            worker.notify_one();
        }
    }
}

impl Waiting {
    /// The oldest that waits, and with it all of its kind, but each key once.
    fn take(&mut self) -> Option<Batch> {
        let now = Instant::now();
        for tickets in &mut self.tickets {
            while tickets.front().is_some_and(|first| first.is_pointless() || first.deadline <= now) {
                if let Some(ticket) = tickets.pop_front() {
                    ticket.answer(Err(StoreError::unavailable(
                        "no connection was free in time; the server is slow, or allow more with `connections`",
                    )));
                }
            }
        }
        let oldest = |kind: &Kind| self.tickets[*kind as usize].front().map(|ticket| ticket.number);
        let kind = KINDS.into_iter().filter(|kind| oldest(kind).is_some()).min_by_key(oldest)?;
        let tickets = take_kind(kind, &mut self.tickets[kind as usize]);
        Some(Batch { kind, tickets })
    }
}

fn take_kind(kind: Kind, tickets: &mut VecDeque<Ticket>) -> Vec<Ticket> {
    let most = if kind == Kind::Single { 1 } else { MOST };
    // Claims of one key are answered from one row; see `claims`.
    let together = kind == Kind::Claims || kind == Kind::Reads;
    let mut keys = HashSet::new();
    let (mut taken, mut later, mut weight) = (Vec::new(), VecDeque::new(), 0);
    while taken.len() < most && weight < MOST_BYTES {
        let Some(ticket) = tickets.pop_front() else { break };
        if ticket.is_pointless() {
            continue;
        }
        if together || keys.insert(ticket.asked.key.clone()) {
            weight += ticket.asked.op.weight();
            taken.push(ticket);
        } else {
            later.push_back(ticket);
        }
    }
    while let Some(ticket) = later.pop_back() {
        tickets.push_front(ticket);
    }
    taken
}

/// A worker's presence: however it ends, another may take its place, and does if work waits.
struct Present(Arc<Queue>);

impl Drop for Present {
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        waiting.workers = waiting.workers.saturating_sub(1);
        let left = waiting.tickets.iter().any(|tickets| !tickets.is_empty());
        if left && waiting.workers < self.0.most_workers {
            waiting.workers += 1;
            drop(waiting);
            if let Ok(runtime) = own_runtime() {
                let present = Self(self.0.clone());
                runtime.spawn(async move { worker::work(&present.0, &present.0.worker).await });
            }
        }
    }
}
