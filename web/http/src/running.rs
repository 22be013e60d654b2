//! The handlers that run in separate tasks, counted so that a server can wait for them when it shuts down.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use idem_runtime::Drained;

/// The handlers that a layer has started and that have not ended. Cheap to clone.
///
/// A handler continues when its client disconnects. So a server that has closed its connections must still wait here.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use std::time::Duration;
/// use idem::MemoryStore;
/// use idem::http::IdempotencyLayer;
///
/// let layer = IdempotencyLayer::shared_by_all_clients(MemoryStore::new());
/// let running = layer.running();
/// // .. the server with `layer` shuts down ..
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

    /// How many handlers are running now.
    #[must_use]
    pub fn count(&self) -> usize {
        *self.0.borrow()
    }

    /// Waits at most `patience` for the handlers, and for the other work that [`idem::drain`](idem_runtime::drain) waits for:
    /// results to record and claims to release. Returns what is left then; a handler that is still running counts among
    /// its `bodies`.
    pub async fn drain(&self, patience: Duration) -> Drained {
        idem_runtime::drain(patience).await
    }

    /// Returns when no handler is running. It does not wait until their results are recorded or their claims released:
    /// use [`drain`](Self::drain) to shut a server down.
    pub async fn finished(&self) {
        // An error means that the sender is gone, and it is in `self`.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }

    /// A place for one more handler, if fewer than `most` are running.
    pub(super) fn place(&self, most: usize) -> Option<Counted> {
        let taken = self.0.send_if_modified(|count| {
            let free = *count < most;
            *count += usize::from(free);
            free
        });
        taken.then(|| Counted(self.clone()))
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
