//! Who asks, and the workers that have a connection; what waits between them is in `waiting`.
//!
//! Operations that wait at the same moment travel together: a worker that is free takes all of one kind.
//! One that comes alone finds a worker idle and is not delayed. While many are on their way, those that come
//! wait for the same to be back: the more a statement carries, the less each costs the server, and one commit
//! waits once for the disk.
//!
//! What a caller waits for anyway is done by workers in its own runtime, as another thread on the way
//! would cost half as much again. What must be done when that runtime is blocked or gone, renewals first
//! of all, is done in the stores' own (decision 0005).

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

use super::waiting::Waiting;
use super::worker;
use crate::error::StoreError;
use crate::key::RecordKey;
use crate::protocol::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Record, RecordStep, RecordStepAnswer, RecordedStep,
    Release, ReleaseAnswer, Renew, RenewAnswer, Resolution, ResolveAnswer, StoredResult,
};
use crate::store::own_runtime::own_runtime;

pub(super) use super::waiting::Ticket;

/// How long a batch is waited for.
const PATIENCE: Duration = Duration::from_millis(20);
/// A worker that had nothing to do for this long closes its connection.
const IDLE: Duration = Duration::from_secs(60);

/// What is asked.
#[derive(Debug)]
pub(super) enum Op {
    Claim(Claim),
    Renew(Renew),
    RecordStep(RecordStep),
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
    RecordStep(RecordStepAnswer),
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
    Recordings,
    Completions,
    /// Judged on what is read, and then written.
    Judged,
    Reads,
    /// One by one.
    Single,
}

pub(super) const KINDS: [Kind; 7] = [
    Kind::Claims,
    Kind::Renewals,
    Kind::Recordings,
    Kind::Completions,
    Kind::Judged,
    Kind::Reads,
    Kind::Single,
];

impl Op {
    pub(super) const fn kind(&self) -> Kind {
        match self {
            Self::Claim(_) => Kind::Claims,
            Self::Renew(_) => Kind::Renewals,
            Self::RecordStep(_) => Kind::Recordings,
            Self::Complete(_) => Kind::Completions,
            Self::Release(_) | Self::Resolve(_) => Kind::Judged,
            Self::Get => Kind::Reads,
            Self::Forget => Kind::Single,
        }
    }

    /// Whether it can only be of use to a caller that waits for it, in its own runtime.
    const fn is_waited_for(&self) -> bool {
        matches!(self, Self::Claim(_) | Self::RecordStep(_) | Self::Complete(_) | Self::Get)
    }

    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Complete(Complete { result: StoredResult::Value(bytes), .. })
            | Self::Resolve(Resolution::Record(_, StoredResult::Value(bytes)))
            | Self::RecordStep(RecordStep {
                step: RecordedStep { result: StoredResult::Value(bytes), .. },
                ..
            }) => bytes.len(),
            _ => 0,
        }
    }
}

impl Kind {
    /// What waits for the disk is kept together, and what only reads does not wait for it.
    pub(super) const fn class(self) -> usize {
        match self {
            Self::Reads => 1,
            _ => 0,
        }
    }
}

/// The queue of one store in one runtime.
pub(super) struct Queue {
    runtime: Handle,
    waiting: Mutex<Waiting>,
    worker: Arc<worker::Setting>,
}

/// The queues of one store.
pub(super) struct Queues {
    worker: Arc<worker::Setting>,
    open: Mutex<Vec<Arc<Queue>>>,
}

/// What a worker is to do.
pub(super) struct Batch {
    pub(super) kind: Kind,
    pub(super) tickets: Vec<Ticket>,
    pub(super) travel: Travel,
}

/// That a batch is on its way, and others wait for it.
pub(super) struct Travel {
    queue: Arc<Queue>,
    class: usize,
    count: usize,
}

impl Travel {
    /// Does the work of the batch. Those that wait for it lose their patience by and by.
    pub(super) async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        match timeout(PATIENCE, work.as_mut()).await {
            Ok(done) => done,
            Err(_) => {
                self.end(false);
                work.await
            }
        }
    }

    /// It is back, and its worker looks for the next.
    pub(super) fn back(mut self) {
        self.end(true);
    }

    fn end(&mut self, comes: bool) {
        let count = std::mem::take(&mut self.count);
        let mut waiting = self.queue.lock();
        if count > 0 {
            waiting.travelling[self.class].arrive(count);
        }
        waiting.coming += usize::from(comes);
        self.queue.call(waiting);
    }
}

impl Drop for Travel {
    fn drop(&mut self) {
        if self.count > 0 {
            self.end(false);
        }
    }
}

impl Queues {
    pub(super) fn new(worker: worker::Setting) -> Self {
        Self { worker: Arc::new(worker), open: Mutex::default() }
    }

    pub(super) fn setting(&self) -> &worker::Setting {
        &self.worker
    }

    /// The queue where `asked` is to wait.
    fn queue(&self, asked: &Asked) -> Result<Arc<Queue>, StoreError> {
        match Handle::try_current() {
            Ok(callers) if asked.op.is_waited_for() => Ok(self.of(&callers)),
            _ => self.own(),
        }
    }

    fn own(&self) -> Result<Arc<Queue>, StoreError> {
        own_runtime().map(|own| self.of(own))
    }

    fn of(&self, runtime: &Handle) -> Arc<Queue> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let id = runtime.id();
        if let Some(queue) = open.iter().find(|queue| queue.runtime.id() == id) {
            return queue.clone();
        }
        // Those of runtimes that ended.
        open.retain(|queue| queue.lock().workers > 0);
        let (waiting, worker) = (Mutex::default(), self.worker.clone());
        let queue = Arc::new(Queue { runtime: runtime.clone(), waiting, worker });
        open.push(queue.clone());
        queue
    }

    /// Asks once.
    pub(super) async fn ask(&self, asked: Arc<Asked>) -> Result<Answer, StoreError> {
        self.queue(&asked)?.ask(asked).await
    }

    /// Asks once, where no caller can hold it up.
    pub(super) async fn ask_apart(&self, asked: Arc<Asked>) -> Result<Answer, StoreError> {
        self.own()?.ask(asked).await
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        for queue in self.open.get_mut().unwrap_or_else(PoisonError::into_inner) {
            queue.close();
        }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(self: &Arc<Self>, asked: Arc<Asked>) -> Result<Answer, StoreError> {
        let (reply, answered) = oneshot::channel();
        self.submit(asked, reply);
        match answered.await {
            Ok(answer) => answer,
            Err(_) => Err(StoreError::outcome_unknown("the work on it was broken off")),
        }
    }

    fn submit(self: &Arc<Self>, asked: Arc<Asked>, reply: oneshot::Sender<Result<Answer, StoreError>>) {
        let deadline = Instant::now() + self.worker.opening.time();
        let mut waiting = self.lock();
        waiting.push(asked, deadline, reply);
        self.call(waiting);
    }

    /// Calls a worker if there is something to do, and none comes by itself.
    fn call(self: &Arc<Self>, mut waiting: MutexGuard<'_, Waiting>) {
        if waiting.coming > 0 || waiting.next_kind().is_none() {
            return;
        }
        if let Some(idle) = waiting.idle.pop() {
            waiting.coming += 1;
            drop(waiting);
            idle.notify_one();
        } else if waiting.workers < self.worker.connections {
            waiting.workers += 1;
            waiting.coming += 1;
            drop(waiting);
            let present = Present(self.clone());
            self.runtime.spawn(async move { worker::work(&present.0, &present.0.worker).await });
        }
    }

    /// The next work, or `None` when there is none for long or for ever; for a worker that is counted among those
    /// that come, and was `busy` if it did much before.
    pub(super) async fn next(self: &Arc<Self>, busy: bool) -> Option<Batch> {
        let rest = Arc::new(Notify::new());
        loop {
            if busy {
                // Those that were answered together ask together, if they are let.
                yield_now().await;
            }
            {
                let mut waiting = self.lock();
                waiting.coming = waiting.coming.saturating_sub(1);
                if let Some((kind, tickets)) = waiting.take() {
                    let (class, count) = (kind.class(), tickets.len());
                    self.call(waiting);
                    return Some(Batch {
                        kind,
                        tickets,
                        travel: Travel { queue: self.clone(), class, count },
                    });
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
        waiting.coming += idle.len();
        drop(waiting);
        for worker in idle {
            worker.notify_one();
        }
    }
}

/// A worker's presence, however it ends: with a panic, or with its runtime.
struct Present(Arc<Queue>);

impl Drop for Present {
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        waiting.workers = waiting.workers.saturating_sub(1);
        let orphans = if waiting.workers == 0 {
            // Whoever rested went with the runtime: to wake it would be to wait for nobody.
            waiting.idle.clear();
            waiting.coming = 0;
            std::mem::take(&mut waiting.tickets)
        } else {
            Default::default()
        };
        drop(waiting);
        // Dropped, they are asked again in the stores' own runtime.
        drop(orphans);
    }
}
