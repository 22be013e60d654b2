//! The handlers that run in tasks of their own, counted for whoever shuts the server down.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::Instrument as _;

use crate::engine::{self, Drained, Pending, Work};

/// The handlers that a layer has started and that have not ended. Cheap to clone.
///
/// A handler goes on when its client disconnects, so a server that has closed its connections is not
/// done: it waits here.
///
/// ```
/// # use idem_runtime as idem;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use std::time::Duration;
/// use idem::MemoryStore;
/// use idem::http::IdempotencyLayer;
///
/// let layer = IdempotencyLayer::shared_by_all_clients(MemoryStore::new());
/// let running = layer.running();
/// // .. the server, with `layer`, ends ..
/// let left = running.drain(Duration::from_secs(25)).await;
/// assert_eq!((running.count(), left.is_complete()), (0, true));
/// # }
/// ```
#[derive(Clone)]
pub struct Running(Arc<watch::Sender<usize>>);

impl Running {
    pub(super) fn none() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }

    /// How many there are now.
    #[must_use]
    pub fn count(&self) -> usize {
        *self.0.borrow()
    }

    /// Waits for them for at most `patience`, and for all else that [`idem::drain`](crate::drain) waits for: what they
    /// left to be recorded or released. Gives what is left then; a handler that still runs is one of its `bodies`.
    pub async fn drain(&self, patience: Duration) -> Drained {
        engine::drain(patience).await
    }

    /// Returns once there are none. It does not wait for what is recorded or released behind them: end a server by
    /// [`drain`](Self::drain).
    pub async fn finished(&self) {
        // The sender is here, so it cannot be gone.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }

    /// A place for one more, if there are fewer than `most`.
    pub(super) fn place(&self, most: usize) -> Option<Counted> {
        let taken = self.0.send_if_modified(|count| {
            let free = *count < most;
            *count += usize::from(free);
            free
        });
        taken.then(|| Counted(self.clone()))
    }

    pub(super) fn spawn<F>(counted: Counted, runtime: &Handle, work: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        runtime.spawn(pending(counted, work).in_current_span())
    }

    /// On this thread, of a `LocalSet`.
    pub(super) fn spawn_local<F>(counted: Counted, work: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: 'static> + 'static,
    {
        tokio::task::spawn_local(pending(counted, work).in_current_span())
    }
}

/// Counted, and waited for by `drain`, from now until it has ended.
fn pending<F: Future>(counted: Counted, work: F) -> impl Future<Output = F::Output> {
    let pending = Pending::new(Work::Body);
    async move {
        // Dropped in the other order: whoever drained sees a count without this one.
        let (_pending, _counted) = (pending, counted);
        work.await
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Running").field(&self.count()).finish()
    }
}

/// The place of one handler.
pub(super) struct Counted(Running);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}
