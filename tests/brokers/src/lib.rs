//! Tests that every broker's crate must pass on a real broker: the same cases for each.
//!
//! Owns the cases. Each crate's `impl Queue` says how to use its broker.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "tests"
)]

mod cases;
mod redrive;
mod shop;

use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use idem_messages::{Consumer, Disposition, Redrive, RedriveSummary, StoredLetter, Summary};

pub use cases::{
    a_message_stays_while_it_cannot_be_set_aside, a_worker_that_is_dropped_leaves_its_messages_to_the_next,
    every, kept_while_it_waits,
};
pub use shop::{Failed, Shop};

/// A consumer that takes the disposition of a message from its handler's error.
pub type Settings = Consumer<fn(&Failed, u32, Disposition) -> Disposition>;

/// Handles the body of a message.
pub type Handler = Box<dyn Fn(String) -> BoxFuture<'static, Result<String, Failed>> + Send + Sync>;

/// Handles the body of a message that was delivered so often.
pub type CountingHandler =
    Box<dyn Fn(String, u32) -> BoxFuture<'static, Result<String, Failed>> + Send + Sync>;

/// A queue of a real broker with its dead letters, and a worker on the crate's source.
pub trait Queue: Send + Sync {
    /// Sends a message, with the header `Trace` whose value is `t-` followed by the body.
    fn send(&self, body: &str) -> impl Future<Output = ()> + Send;

    /// Runs the crate's source over it.
    fn work(
        &self,
        shutdown: BoxFuture<'static, ()>,
        settings: Settings,
        handler: Handler,
    ) -> impl Future<Output = Summary> + Send;

    /// The number of unfinished messages, including those that a worker holds. `None` if the broker does not answer.
    fn left(&self) -> impl Future<Output = Option<u64>> + Send;

    /// The dead letters, in any order.
    fn dead_letters(&self) -> impl Future<Output = Vec<DeadLetter>> + Send;

    /// The dead letters as the crate's source lists them.
    fn letters(&self) -> impl Future<Output = Vec<StoredLetter>> + Send;

    /// Sends dead letters back by the crate's source.
    fn redrive(&self, redrive: Redrive) -> impl Future<Output = RedriveSummary> + Send;
}

/// A queue whose place for dead letters can be removed while its worker runs.
pub trait Losing: Queue {
    /// Removes the place for dead letters.
    fn lose_dead_letters(&self) -> impl Future<Output = ()> + Send;

    /// Creates it again.
    fn restore_dead_letters(&self) -> impl Future<Output = ()> + Send;
}

/// A message that was set aside.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeadLetter {
    /// The message's body.
    pub body: String,
    /// The reason, from the crate's header.
    pub reason: String,
    /// The header `Trace`.
    pub trace: String,
    /// The crate's header for the handler's last error, decoded where the broker's headers need it encoded.
    pub error: String,
}

/// Returns once `condition` holds.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !condition().await {
        assert!(begin.elapsed() < Duration::from_secs(90), "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns once nothing is left in the queue.
pub async fn emptied(queue: &impl Queue) {
    until("the queue is empty", async || queue.left().await == Some(0)).await;
}
