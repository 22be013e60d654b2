//! Handlers in tasks of their own, so that a consumer uses more than one thread.
//!
//! Owns what a handler's task takes along, and its end with its handler. It knows no message.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tracing::Instrument as _;

use super::observation::Observation;
use idem_runtime::observer::{BackgroundWork, in_another_task};

/// Runs each handler in a task of its own: for handlers that compute, and for consumers that have more to do than one
/// thread can. For [`Consumer::run`](super::Consumer::run) and what else takes such a handler.
///
/// Everything else is as without it: the same limits, order, shutdown and settlement. A handler that is dropped has
/// ended before its message is given back, unless it blocks its thread for longer than 5 s. Task-locals of the program
/// do not reach into the task; `tracing`'s span does. Each message costs a task more.
///
/// # Panics
///
/// The future of a handler panics as the handler does, and outside a tokio runtime.
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
/// let messages = stream::iter([Message("42".into()), Message("43".into())]);
/// let handler = |message: &Message| {
///     let (store, order) = (store.clone(), message.0.clone());
///     async move { Operation::new("orders.ship").run(&store, order, || async { Ok::<_, Error>(7) }).await }
/// };
/// let summary = Consumer::new().run(messages, in_tasks(handler)).await;
/// assert_eq!(summary.acknowledged, 2);
/// # }
/// ```
pub fn in_tasks<M, H, F>(handler: H) -> impl Fn(&M) -> HandlerTask<F>
where
    H: Fn(&M) -> F,
    F: Future<Output: Send + 'static> + Send + 'static,
{
    move |message| HandlerTask { handler: Some(handler(message)), running: None }
}

/// A handler in its own task: see [`in_tasks`]. The task begins when this is first polled, and is aborted when this is
/// dropped.
#[must_use = "a handler does nothing until it is polled"]
pub struct HandlerTask<F: Future> {
    handler: Option<F>,
    running: Option<Running<F::Output>>,
}

// A handler is pinned in its task only.
impl<F: Future> Unpin for HandlerTask<F> {}

impl<F> Future for HandlerTask<F>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if let Some(handler) = self.handler.take() {
            self.running = Some(Running::start(handler));
        }
        let Some(running) = &mut self.running else { return Poll::Pending };
        match running.answer.poll_unpin(cx) {
            Poll::Ready(Ok(ended)) => {
                running.task = None;
                self.running = None;
                Poll::Ready(ended.unwrap_or_else(|payload| resume_unwind(payload)))
            }
            // The runtime shuts down, and this future with it.
            Poll::Ready(Err(_)) => {
                self.running = None;
                Poll::Pending
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<F: Future> fmt::Debug for HandlerTask<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerTask").finish_non_exhaustive()
    }
}

/// A task that runs.
struct Running<T> {
    answer: oneshot::Receiver<Result<T, Box<dyn Any + Send>>>,
    /// `None` once it has answered.
    task: Option<JoinHandle<()>>,
    observation: Option<Arc<Observation>>,
}

impl<T: Send + 'static> Running<T> {
    fn start(handler: impl Future<Output = T> + Send + 'static) -> Self {
        let (sender, answer) = oneshot::channel();
        let handler = in_another_task(handler);
        let task = async move {
            let ended = AssertUnwindSafe(handler).catch_unwind().await;
            // Who waited may be gone.
            let _ = sender.send(ended);
        };
        let task = Some(tokio::spawn(task.in_current_span()));
        Self { answer, task, observation: Observation::of_running_handler() }
    }
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        let Some(task) = self.task.take() else { return };
        task.abort();
        // The task drops its handler only when it yields its thread. The consumer waits for that.
        if let Some(observation) = &self.observation {
            observation.left_behind(BackgroundWork::of(task));
        }
    }
}
