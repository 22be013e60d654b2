//! Runs each handler in its own task, so that a consumer uses more than one thread.
//!
//! Owns what a handler's task inherits, and the rule that the task ends if the consumer drops the handler.
//! This module knows no message.

use std::future::pending;
use std::panic::resume_unwind;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;
use tracing::Instrument as _;

use super::observation::Observation;
use idem_runtime::observer::{BackgroundWork, in_another_task};

/// Runs each handler in its own task: for handlers that compute, and for consumers with more work than one
/// thread can do. Pass the result to [`Consumer::run`](super::Consumer::run), or to anything else that takes
/// such a handler.
///
/// Everything else is the same as without this function: limits, order, shutdown and settlement. If the
/// consumer drops a handler, it gives the message back only after the handler has ended. But if the handler
/// blocks its thread for more than 5 s, the consumer gives the message back after 5 s. The task does not get
/// the program's task-locals, but it gets `tracing`'s span. Each message costs an additional task.
///
/// # Panics
///
/// The future panics if the handler panics, or if the future runs outside a tokio runtime.
///
/// ```
/// # use std::time::Duration;
/// # struct Message(String);
/// # impl idem::message::Delivery for Message {
/// #     type Error = std::convert::Infallible;
/// #     async fn acknowledge(&self) -> Result<(), Self::Error> { Ok(()) }
/// #     async fn retry(&self, _: Duration) -> Result<(), Self::Error> { Ok(()) }
/// #     async fn reject(&self, _: &idem::message::DeadLetter) -> Result<(), Self::Error> { Ok(()) }
/// #     async fn give_back(&self) -> Result<(), Self::Error> { Ok(()) }
/// # }
/// # #[tokio::main]
/// # async fn main() {
/// use futures_util::stream;
/// use idem::message::{Consumer, in_tasks};
/// use idem::{Error, MemoryStore, Operation};
///
/// let store = MemoryStore::new();
/// let messages = stream::iter([Ok::<_, String>(Message("42".into())), Ok(Message("43".into()))]);
/// let handler = |message: &Message| {
///     let (store, order) = (store.clone(), message.0.clone());
///     async move { Operation::new("orders.ship").run(&store, order, || async { Ok::<_, Error>(7) }).await }
/// };
/// let summary = Consumer::new().run(messages, in_tasks(handler)).await;
/// assert_eq!(summary.acknowledged, 2);
/// # }
/// ```
pub fn in_tasks<M, H, F>(handler: H) -> impl Fn(&M) -> BoxFuture<'static, F::Output>
where
    H: Fn(&M) -> F,
    F: Future<Output: Send + 'static> + Send + 'static,
{
    move |message| run_in_task(handler(message)).boxed()
}

async fn run_in_task<F>(handler: F) -> F::Output
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let task = tokio::spawn(in_another_task(handler).in_current_span());
    let mut running = Running { task: Some(task), observation: Observation::of_running_handler() };
    let Some(task) = &mut running.task else { return pending().await };
    let ended = task.await;
    running.task = None;
    match ended {
        Ok(output) => output,
        Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
        // The runtime shuts down, and drops this future, too.
        Err(_) => pending().await,
    }
}

/// The task of a handler. Dropping this value ends the task.
struct Running<T: Send + 'static> {
    /// `None` after the task has ended.
    task: Option<JoinHandle<T>>,
    observation: Option<Arc<Observation>>,
}

impl<T: Send + 'static> Drop for Running<T> {
    fn drop(&mut self) {
        let Some(task) = self.task.take() else { return };
        task.abort();
        // The task drops its handler only when the handler yields its thread. The consumer waits for this,
        // but not longer than `AFTERMATH`.
        if let Some(observation) = &self.observation {
            observation.left_behind(BackgroundWork::of(task));
        }
    }
}
