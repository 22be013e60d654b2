//! The events of calls, and what gets them.
//!
//! Owns the vocabulary between the engine and code that makes calls for others: see [`observer`](crate::observer).

use std::fmt;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use tokio::task::{AbortHandle, JoinHandle};

use super::outcome::Outcome;
use crate::error::Error;
use idem_core::RecordKey;

/// What gets the events of calls: see [`observed_by`](crate::observer::observed_by).
pub trait CallObserver: Send + Sync {
    /// A call that this observer sees comes to this event. It runs inside the call, so it must not block.
    fn event(&self, event: &CallEvent<'_>);
}

/// An event of a call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CallEvent<'a> {
    /// A call begins. Its request to the store comes after this event. A call that is refused before it has a key begins
    /// without one.
    #[non_exhaustive]
    Started {
        /// Its key. It is private data.
        key: &'a RecordKey,
        /// How long its operation keeps results.
        ttl: Duration,
    },
    /// A call has the key, and its body may run.
    #[non_exhaustive]
    Granted {
        /// Its key. It is private data.
        key: &'a RecordKey,
        /// Which attempt it is; from 1.
        attempt: u32,
    },
    /// How a call got its result. A later event of the same call replaces it.
    Outcome(Outcome),
    /// A call ended without a recorded value.
    Ended(&'a CallEnd),
    /// A call that ended, or that its caller dropped, left work in the background: a result to record or a claim to release.
    Background(BackgroundWork),
}

/// How a call without a recorded value ended. The list is complete, so a consumer can decide for each case.
#[derive(Clone, Debug)]
pub enum CallEnd {
    /// It was refused, or its result is not available.
    Refused(Error),
    /// Its body failed, or gave a value that `record_if` refused: the key is free again.
    #[non_exhaustive]
    Released {
        /// Which attempt it was; from 1.
        attempt: u32,
        /// How long until the key is due again.
        retry_after: Duration,
    },
    /// It has a terminal error, returned now or recorded earlier.
    Terminal,
}

/// Work that a call left in the background. [`drain`](crate::drain) waits for that of all calls.
#[derive(Clone)]
pub struct BackgroundWork {
    task: AbortHandle,
    end: Shared<BoxFuture<'static, ()>>,
}

impl BackgroundWork {
    /// The work of this task.
    #[must_use]
    pub fn of<T: Send + 'static>(task: JoinHandle<T>) -> Self {
        // A task that panicked or was shut down has ended, too.
        Self { task: task.abort_handle(), end: task.map(drop).boxed().shared() }
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// Returns when it has ended.
    pub async fn finished(self) {
        self.end.await;
    }
}

impl fmt::Debug for BackgroundWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackgroundWork").field("is_finished", &self.is_finished()).finish()
    }
}
