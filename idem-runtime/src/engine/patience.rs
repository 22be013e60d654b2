//! How long the engine retries a release whose caller has gone on.
//!
//! A release also counts after its lease, so an outage that is longer than a lease makes no doubt and no `recovered()` of its own.

use backon::{BackoffBuilder, ExponentialBackoff};
use tokio::time::{Instant, sleep};

use super::background::ReleaseRoom;
use super::call::Prepared;
use super::late_recording::LONGEST;
use super::process::Process;
use super::retry::{LONGEST_PAUSE, late_backoff};
use crate::error::StoreError;
use idem_core::Store;

/// How long a release waits for its store, and how often it is tried.
pub(super) struct Patience {
    begin: Instant,
    pauses: ExponentialBackoff,
    process: Process,
    room: Option<ReleaseRoom>,
}

impl Patience {
    pub(super) fn new<S: Store>(call: &Prepared<S>) -> Self {
        let process = call.process.clone();
        Self { begin: Instant::now(), pauses: late_backoff().build(), process, room: None }
    }

    /// Waits until the next try after this error. Returns whether there is one.
    pub(super) async fn wait_after(&mut self, error: &StoreError) -> bool {
        if self.room.is_none() {
            self.room = ReleaseRoom::take(&self.process);
        }
        if self.room.is_none() || !error.is_transient() || self.begin.elapsed() >= LONGEST {
            return false;
        }
        sleep(self.pauses.next().unwrap_or(LONGEST_PAUSE)).await;
        true
    }
}
