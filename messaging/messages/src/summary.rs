//! How the messages of a stream were settled.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use idem_runtime::Drained;

/// How a [`Consumer`](super::Consumer) settled the messages that it took, and what went wrong meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// How many messages were taken from the stream.
    pub taken: u64,
    /// How many messages were acknowledged.
    pub acknowledged: u64,
    /// How many of the acknowledged messages got a recorded result from their last idempotent call.
    pub replayed: u64,
    /// How often a message had to be tried again: delivered again by the broker, or retried in this consumer.
    pub retried: u64,
    /// How often a message was held because the store could not be used. This does not increase the broker's
    /// count of deliveries.
    pub held: u64,
    /// How many messages were set aside.
    pub rejected: u64,
    /// How many messages were given back at the shutdown.
    pub given_back: u64,
    /// How often a handler panicked. The message is also counted in `retried` or `rejected`, once it is
    /// settled.
    pub panicked: u64,
    /// How often a request to the broker failed, or was not answered in time.
    pub broker_errors: u64,
    /// How often the stream returned an error instead of a message.
    pub stream_errors: u64,
    /// The operations whose results are kept for a shorter time than the
    /// [`redelivery_horizon`](super::Consumer::redelivery_horizon), and how long they are kept. A message
    /// that is delivered after that time runs its body again.
    pub forgetful: BTreeMap<String, Duration>,
    /// What this process still had to record or release when a consumer had shut down.
    pub left: Drained,
}

/// The [`Summary`] of a consumer that runs: see [`Consumer::progress`](super::Consumer::progress). Cheap to
/// clone.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Mutex<Summary>>);

impl Progress {
    /// A summary with all counts at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The counts up to now.
    #[must_use]
    pub fn summary(&self) -> Summary {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reports an operation that keeps its results for a shorter time than the horizon.
    pub(super) fn forgets(&self, operation: &str, ttl: Duration) {
        if self.count(|summary| summary.forgetful.insert(operation.to_owned(), ttl).is_none()) {
            tracing::warn!(
                target: "idem",
                event = "ttl_below_horizon",
                operation,
                ttl_s = ttl.as_secs(),
                "results are kept for a shorter time than the broker may deliver a message again"
            );
        }
    }

    pub(super) fn count<T>(&self, count: impl FnOnce(&mut Summary) -> T) -> T {
        count(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
