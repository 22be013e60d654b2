//! The watch: a task that checks the queues of a store again and again. It runs in the stores' own runtime,
//! whose clock no test pauses.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

use idem_core::StoreError;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::queue::{Queue, Shared};
use super::server::Server;

/// How often to look while operations wait.
const OFTEN: Duration = Duration::from_millis(20);
/// A session that nobody used for this long is closed.
const IDLE: Duration = Duration::from_secs(60);

/// Wakes the watch.
#[derive(Default)]
pub(super) struct Wake {
    notify: Notify,
    /// Whether the watch sleeps for a longer time, so that an event must wake it.
    dozes: AtomicBool,
}

impl Wake {
    /// Makes the watch look at the queues soon.
    pub(super) fn wake(&self) {
        if self.dozes.load(Ordering::SeqCst) && self.dozes.swap(false, Ordering::SeqCst) {
            self.notify.notify_one();
        }
    }
}

/// Ends attempts that take too long, answers operations whose deadline is over, closes idle sessions, and
/// starts workers that are missing. Returns when the store is dropped and no session is open any more.
pub(super) async fn watch<S: Server>(shared: Weak<Shared<S>>, wake: Arc<Wake>) {
    let (mut queues, mut time) = (Vec::new(), Duration::ZERO);
    loop {
        // Set before the look, so that later events wake the watch.
        wake.dozes.store(true, Ordering::SeqCst);
        let is_closed = match shared.upgrade() {
            Some(shared) => {
                time = shared.server.timeout();
                queues.clone_from(&shared.queues.lock().unwrap_or_else(PoisonError::into_inner));
                false
            }
            None => true,
        };
        if !look(&queues, time) {
            if is_closed && !queues.iter().any(|queue| queue.lock().is_at_work()) {
                return;
            }
            let _ = timeout((time / 8).min(IDLE / 2).max(OFTEN), wake.notify.notified()).await;
        }
        wake.dozes.store(false, Ordering::SeqCst);
        // This pause gives a worker that was just started time to look for work first.
        sleep(OFTEN).await;
    }
}

/// Looks once, and returns whether to look again soon.
fn look<S: Server>(queues: &[Arc<Queue<S>>], time: Duration) -> bool {
    let now = Instant::now();
    let mut is_urgent = false;
    for queue in queues {
        let mut state = queue.lock();
        if let Some(since) = now.checked_sub(time) {
            state.backlog.end_attempts(since);
        }
        let old = state.idle.partition_point(|(_, since)| now.duration_since(*since) >= IDLE);
        let old: Vec<_> = state.idle.drain(..old).map(|(session, _)| session).collect();
        let expired = state.backlog.take_expired(now);
        is_urgent |= state.backlog.has_waiting();
        queue.ask_about_lingering(&mut state);
        queue.start(state, now);
        queue.close_sessions(old.into_iter());
        for ticket in expired {
            ticket.answer(Err(StoreError::unavailable(
                "no connection was free in time; the server is slow, or allow more with `connections`",
            )));
        }
    }
    is_urgent
}
