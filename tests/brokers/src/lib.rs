//! Tests that every broker's crate must pass on a real broker: the same cases for each.
//!
//! Owns the cases. Also sets up the queues, streams and topics for these tests and for the demo, with each
//! broker's own client. Each crate's `impl Queue` says how to use the crate's source.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    reason = "tests"
)]

mod cases;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
mod redrive;
mod shop;
#[cfg(feature = "sqs")]
pub mod sqs;

use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use idem_messages::{Broker, Consumer, Redrive, RedriveSummary, StoredLetter, Summary};

pub use cases::{
    a_broker_that_is_restarted_loses_nothing_and_the_worker_goes_on,
    a_message_stays_while_it_cannot_be_set_aside, a_message_that_waits_for_a_handler_is_kept_by_its_worker,
    every, until_over, work_off, work_until,
};
pub use shop::{Failed, Shop};

/// Any error of a broker's client.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A consumer that takes the disposition of a message from its handler's error.
pub type Settings = Consumer<Failed>;

/// A message as a worker got it.
#[derive(Clone, Debug)]
pub struct Delivered {
    /// The body of the message.
    pub body: String,
    /// The message's header `Trace`.
    pub trace: Option<String>,
    /// How often the broker has delivered the message; always 1 if the tests of a broker do not need the
    /// number.
    pub deliveries: u32,
}

/// Handles a message.
pub type Handler = Box<dyn Fn(Delivered) -> BoxFuture<'static, Result<String, Failed>> + Send + Sync>;

/// A queue of a real broker with its dead letters, and a worker on the crate's source.
pub trait Queue: Send + Sync {
    /// Sends a message, with the header `Trace` whose value is `t-` followed by the body.
    fn send(&self, body: &str) -> impl Future<Output = ()> + Send;

    /// Runs a worker on this queue with the crate's source.
    fn work(
        &self,
        shutdown: BoxFuture<'static, ()>,
        settings: Settings,
        handler: Handler,
    ) -> impl Future<Output = Summary> + Send;

    /// The number of unfinished messages, including those that a worker holds. `None` if the broker does not
    /// answer.
    fn left(&self) -> impl Future<Output = Option<u64>> + Send;

    /// The crate's source of messages.
    type Source: Broker;

    /// Makes a new source.
    fn source(&self) -> Self::Source;

    /// The dead letters as the crate's source lists them.
    fn letters(&self) -> impl Future<Output = Vec<StoredLetter>> {
        async { idem_messages::list(&self.source()).await.unwrap() }
    }

    /// Sends dead letters back by the crate's source.
    fn redrive(&self, mut redrive: Redrive) -> impl Future<Output = RedriveSummary> {
        async move {
            self.source().redrive_letters(&mut redrive).await.unwrap();
            redrive.summary()
        }
    }
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
