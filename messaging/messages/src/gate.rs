//! Whether the store of a consumer's calls is usable.
//!
//! Owns the rule that a failing store is not the fault of a message. If the store fails during a message's
//! call, the message waits here, with growing pauses. The consumer takes no more messages until a call gets
//! an answer from the store, or no message waits here any more.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::{pauses, report};

/// The first and the longest pause before the store is tried again.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Closed while the store fails.
#[derive(Debug)]
pub(crate) struct Gate {
    open: watch::Sender<bool>,
    held: AtomicUsize,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self { open: watch::Sender::new(true), held: AtomicUsize::new(0) }
    }

    /// Holds a message until the returned value is dropped. The drop of the last such value opens the gate,
    /// because without a held message, no call would try the store again.
    pub(crate) fn hold(&self) -> Held<'_> {
        self.held.fetch_add(1, Ordering::Relaxed);
        Held(self)
    }

    pub(crate) fn is_open(&self) -> bool {
        *self.open.borrow()
    }

    /// Closes the gate, because a call found the store failing. Returns whether the gate was open.
    pub(crate) fn close(&self) -> bool {
        self.open.send_replace(false)
    }

    /// Opens the gate, because a call got an answer from the store, or no message is left that would try the
    /// store.
    pub(crate) fn open(&self) {
        if self.open.send_if_modified(|open| !std::mem::replace(open, true)) {
            report::released();
        }
    }

    /// The pauses of one message.
    pub(crate) fn pauses() -> impl Iterator<Item = Duration> {
        pauses(PAUSES)
    }

    /// Waits until the next pause is over, or until another message finds that the store answers. Waits at
    /// least a second, because the store may answer the calls of other messages, but not of this one.
    pub(crate) async fn wait(&self, pauses: &mut impl Iterator<Item = Duration>) {
        let (first, longest) = PAUSES;
        let pause = pauses.next().unwrap_or(longest);
        let mut open = self.open.subscribe();
        sleep(first).await;
        let _ = timeout(pause.saturating_sub(first), open.wait_for(|open| *open)).await;
    }
}

#[derive(Debug)]
#[must_use]
pub(crate) struct Held<'g>(&'g Gate);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.0.held.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.open();
        }
    }
}
