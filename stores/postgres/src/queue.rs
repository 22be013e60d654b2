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

mod worker;

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

pub(super) use self::worker::Setting;
use super::backlog::Backlog;
use super::operation::{Answer, Kind, Operation, Ticket};
use idem_core::StoreError;
use idem_core::support::own_runtime::own_runtime;

/// How long a batch is waited for.
const PATIENCE: Duration = Duration::from_millis(20);
/// A worker that had nothing to do for this long closes its connection.
const IDLE: Duration = Duration::from_secs(60);

/// The queue of one store in one runtime.
pub(super) struct Queue {
    runtime: Handle,
    waiting: Mutex<Backlog>,
    worker: Arc<Setting>,
}

/// The queues of one store.
pub(super) struct Queues {
    worker: Arc<Setting>,
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
    pub(super) fn new(worker: Setting) -> Self {
        Self { worker: Arc::new(worker), open: Mutex::default() }
    }

    pub(super) fn setting(&self) -> &Setting {
        &self.worker
    }

    /// The queue where `asked` is to wait.
    fn queue(&self, asked: &Operation) -> Result<Arc<Queue>, StoreError> {
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
    pub(super) async fn ask(&self, asked: Arc<Operation>) -> Result<Answer, StoreError> {
        self.queue(&asked)?.ask(asked).await
    }

    /// Asks once, where no caller can hold it up.
    pub(super) async fn ask_apart(&self, asked: Arc<Operation>) -> Result<Answer, StoreError> {
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
    fn lock(&self) -> MutexGuard<'_, Backlog> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(self: &Arc<Self>, asked: Arc<Operation>) -> Result<Answer, StoreError> {
        let (reply, answered) = oneshot::channel();
        self.submit(asked, reply);
        match answered.await {
            Ok(answer) => answer,
            Err(_) => Err(StoreError::outcome_unknown("the work on it was broken off")),
        }
    }

    fn submit(self: &Arc<Self>, asked: Arc<Operation>, reply: oneshot::Sender<Result<Answer, StoreError>>) {
        let deadline = Instant::now() + self.worker.connector.timeout();
        let mut waiting = self.lock();
        waiting.push(asked, deadline, reply);
        self.call(waiting);
    }

    /// Calls a worker if there is something to do, and none comes by itself.
    fn call(self: &Arc<Self>, mut waiting: MutexGuard<'_, Backlog>) {
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
        loop {
            // New each time: one that was used may hold a wake-up that came late, and would count twice.
            let rest = Arc::new(Notify::new());
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
