//! The handlers that run in tasks of their own, counted for whoever shuts the server down.

use std::fmt;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::Instrument as _;

/// The handlers that a layer has started and that have not ended, with what is still to be recorded of
/// them. Cheap to clone.
///
/// A handler goes on when its client disconnects, so a server that has closed its connections is not
/// done: it waits here.
///
/// ```
/// # use idem_runtime as idem;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use idem::MemoryStore;
/// use idem::http::IdempotencyLayer;
///
/// let layer = IdempotencyLayer::new(MemoryStore::new());
/// let running = layer.running();
/// // .. the server, with `layer`, is asked to end ..
/// running.finished().await;
/// assert_eq!(running.count(), 0);
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

    /// Returns once there are none. Set a limit by `tokio::time::timeout`.
    pub async fn finished(&self) {
        // The sender is here, so it cannot be gone.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }

    pub(super) fn spawn<F>(&self, runtime: &Handle, work: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let counted = Counted::new(self.clone());
        let work = async move {
            let _counted = counted;
            work.await
        };
        runtime.spawn(work.in_current_span())
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Running").field(&self.count()).finish()
    }
}

struct Counted(Running);

impl Counted {
    fn new(running: Running) -> Self {
        running.0.send_modify(|count| *count += 1);
        Self(running)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}
