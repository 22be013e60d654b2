//! Passes operations from callers to workers, each of which has a connection. `backlog` holds the operations that wait.
//!
//! Operations that wait at the same moment share a batch: a free worker takes all of them. An operation that comes alone
//! is run in the caller's runtime, if it can be (`callers`), or finds an idle worker and is not delayed. Workers live in the stores' own
//! runtime: in the caller's, a body that blocks its thread would hold up the renewal of its own lease (decision 0005).

mod worker;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::backlog::{Backlog, Class};
use super::callers::{Alone, Callers};
use super::operation::{Answer, Operation, Ticket};
use super::setting::Setting;
use idem_core::support::own_runtime::own_runtime;
use idem_core::{RecordKey, StoreError};

/// A worker without work for this long ends and closes its connection.
const IDLE: Duration = Duration::from_secs(60);

/// The operations of one store.
pub(super) struct Queue {
    backlog: Mutex<Backlog>,
    wake: Notify,
    setting: Arc<Setting>,
}

/// The store's hold on its queue: when the last handle is dropped, the workers end.
pub(super) struct Queues {
    queue: Arc<Queue>,
    callers: Arc<Callers>,
}

/// The operations that a worker runs together.
pub(super) struct Batch {
    pub(super) class: Class,
    pub(super) tickets: Vec<Ticket>,
    /// Marks the batch as in flight until it is dropped.
    travel: Travel,
}

struct Travel {
    queue: Arc<Queue>,
    class: Class,
    keys: Vec<RecordKey>,
}

impl Drop for Travel {
    fn drop(&mut self) {
        let mut backlog = self.queue.lock();
        backlog.back(self.class, self.keys.len(), &self.keys);
        self.queue.call(backlog);
    }
}

impl Queues {
    pub(super) fn new(setting: Setting) -> Self {
        let (backlog, wake, setting) = (Mutex::default(), Notify::new(), Arc::new(setting));
        let callers = Callers::new(setting.clone());
        Self { queue: Arc::new(Queue { backlog, wake, setting }), callers }
    }

    pub(super) fn setting(&self) -> &Setting {
        &self.queue.setting
    }

    /// Runs an operation once.
    pub(super) async fn ask(&self, asked: Arc<Operation>) -> Result<Answer, StoreError> {
        let deadline = Instant::now() + self.setting().connector.timeout;
        let under_way = self.callers.count();
        let is_long = match under_way.alone(&asked).await {
            Alone::Settled(answer) => return answer,
            Alone::Unsettled => true,
            Alone::NotTried => false,
        };
        own_runtime()?;
        let (reply, answered) = oneshot::channel();
        let may_be_done = AtomicBool::new(false);
        self.submit(Ticket { asked, is_long, may_be_done, deadline, reply });
        match answered.await {
            Ok(answer) => answer,
            Err(_) => Err(StoreError::outcome_unknown("the work on it was broken off")),
        }
    }

    fn submit(&self, ticket: Ticket) {
        let mut backlog = self.queue.lock();
        backlog.push(ticket);
        self.queue.call(backlog);
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        self.queue.lock().closed = true;
        self.queue.wake.notify_waiters();
        // Leaves a permit for a worker that is about to wait.
        self.queue.wake.notify_one();
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Backlog> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes or starts a worker if there is work.
    fn call(self: &Arc<Self>, mut backlog: MutexGuard<'_, Backlog>) {
        if !backlog.has_work() {
            return;
        }
        if backlog.idle > 0 {
            drop(backlog);
            self.wake.notify_one();
        } else if backlog.workers < self.setting.connections
            && let Ok(runtime) = own_runtime()
        {
            backlog.workers += 1;
            drop(backlog);
            let present = Present(self.clone());
            runtime.spawn(async move { worker::work(&present.0).await });
        }
    }

    /// The next batch, or `None` when there was no work for `IDLE` or the store is closed.
    async fn next(self: &Arc<Self>) -> Option<Batch> {
        // Callers that got their answers together can send their next operations first, so that these share a batch.
        yield_now().await;
        loop {
            {
                let mut backlog = self.lock();
                if let Some((class, tickets)) = backlog.take(self.setting.most_bytes) {
                    let keys = tickets.iter().map(|ticket| ticket.asked.key.clone()).collect();
                    self.call(backlog);
                    let travel = Travel { queue: self.clone(), class, keys };
                    return Some(Batch { class, tickets, travel });
                }
                if backlog.closed {
                    // Lets the next worker end too.
                    self.wake.notify_one();
                    return None;
                }
                backlog.idle += 1;
            }
            let woken = timeout(IDLE, self.wake.notified()).await;
            let mut backlog = self.lock();
            backlog.idle -= 1;
            if woken.is_err() && !backlog.has_work() {
                return None;
            }
        }
    }
}

/// Counts a worker, however it ends.
struct Present(Arc<Queue>);

impl Drop for Present {
    fn drop(&mut self) {
        let mut backlog = self.0.lock();
        backlog.workers = backlog.workers.saturating_sub(1);
        let orphans = if backlog.workers == 0 { backlog.abandon() } else { Vec::new() };
        drop(backlog);
        // Their callers repeat operations that are dropped without an answer.
        drop(orphans);
    }
}
