//! Who asks, and the workers that have a connection; what waits between them is in `backlog`.
//!
//! Operations that wait at the same moment travel together: a worker that is free takes all of them. One that comes alone
//! finds a worker idle and is not delayed. Workers live in the stores' own runtime: in the caller's, a body that blocks
//! its thread would hold up the renewal of its own lease (decision 0005).

mod worker;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::backlog::{Backlog, Class};
use super::operation::{Answer, Operation, Ticket};
use super::setting::Setting;
use idem_core::support::own_runtime::own_runtime;
use idem_core::{RecordKey, StoreError};

/// A worker that had nothing to do for this long closes its connection.
const IDLE: Duration = Duration::from_secs(60);

/// The operations of one store.
pub(super) struct Queue {
    backlog: Mutex<Backlog>,
    wake: Notify,
    setting: Setting,
}

/// The store's hold on its queue: when the last handle is dropped, the workers end.
pub(super) struct Queues(Arc<Queue>);

/// What a worker is to do.
pub(super) struct Batch {
    pub(super) class: Class,
    pub(super) tickets: Vec<Ticket>,
    /// That it is on its way, until this is dropped.
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
        let (backlog, wake) = (Mutex::default(), Notify::new());
        Self(Arc::new(Queue { backlog, wake, setting }))
    }

    pub(super) fn setting(&self) -> &Setting {
        &self.0.setting
    }

    /// Asks once.
    pub(super) async fn ask(&self, asked: Arc<Operation>) -> Result<Answer, StoreError> {
        own_runtime()?;
        match self.submit(asked).await {
            Ok(answer) => answer,
            Err(_) => Err(StoreError::outcome_unknown("the work on it was broken off")),
        }
    }

    fn submit(&self, asked: Arc<Operation>) -> oneshot::Receiver<Result<Answer, StoreError>> {
        let (reply, answered) = oneshot::channel();
        let deadline = Instant::now() + self.setting().connector.timeout;
        let mut backlog = self.0.lock();
        backlog.push(Ticket { asked, deadline, reply });
        self.0.call(backlog);
        answered
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.wake.notify_waiters();
        // For one that is about to wait.
        self.0.wake.notify_one();
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Backlog> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a worker if there is something to do.
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

    /// The next work, or `None` when there is none for long or for ever.
    async fn next(self: &Arc<Self>) -> Option<Batch> {
        // Those that were answered together ask together, if they are let.
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
                    // The next one ends too.
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

/// A worker's presence, however it ends.
struct Present(Arc<Queue>);

impl Drop for Present {
    fn drop(&mut self) {
        let mut backlog = self.0.lock();
        backlog.workers = backlog.workers.saturating_sub(1);
        let orphans = if backlog.workers == 0 { backlog.abandon() } else { Vec::new() };
        drop(backlog);
        // Dropped, they are asked again by those who wait for them.
        drop(orphans);
    }
}
