//! Releasing a claim without a result.
//!
//! Owns how long a release is retried. It also owns what comes before a release: if the body was started, the
//! steps that have ended are recorded.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep};

use crate::engine::Process;
use crate::engine::body::steps::flush;
use crate::engine::claim::claimed::{AnyClaim as _, Claimed};
use crate::engine::claim::waiters::Waiters;
use crate::engine::prepare::Call;
use crate::engine::record::background::{LONGEST as LONGEST_RETRIES, Work};
use crate::engine::report::Event;
use crate::engine::retry::{LEAST_TIMEOUT, LONGEST_PAUSE, answered, backoff, late_backoff};
use crate::error::StoreError;
use idem_core::Store;
use idem_core::defaults::LONGEST;
use idem_core::protocol::{Release, ReleaseAnswer, ReleaseCause};

impl<S: Store> Claimed<S> {
    /// Tries once to release the claim. `again` is `true` in the background, and `false` if the caller
    /// waits.
    pub(crate) async fn release(
        &self,
        mut cause: ReleaseCause,
        retry_after: Duration,
        again: bool,
    ) -> Result<(), StoreError> {
        if cause != ReleaseCause::Unused {
            cause = self.with_its_steps(cause, again).await;
        }
        let retry_after = if cause == ReleaseCause::Failed { retry_after } else { Duration::ZERO };
        let request =
            Release::new(self.owner, self.grant.fence, cause).with_retry_after(retry_after.min(LONGEST));
        let patience = self.call.policy.store_timeout;
        let answer = answered("the release", patience, self.call.store.release(&self.call.key, &request));
        match answer.await? {
            ReleaseAnswer::Released => self.report(&Event::RELEASED),
            ReleaseAnswer::InDoubt => self.report(&Event::IN_DOUBT),
            _ => {}
        }
        Waiters::wake_in(&self.call.store, &self.call.key);
        Ok(())
    }

    /// Records the steps that have ended, so that they do not run again. If that fails, the store does not
    /// know all that the body did, so a failed body counts as abandoned. If the last request to record a step
    /// failed, only a release in the background (`again`) sends that request again, because no caller waits
    /// for such a release.
    async fn with_its_steps(&self, cause: ReleaseCause, again: bool) -> ReleaseCause {
        let recorded = match self.log.is_flushed() {
            Ok(true) => true,
            Err(()) if !again => false,
            Ok(false) | Err(()) => flush(self).await.is_ok(),
        };
        if cause == ReleaseCause::Failed && !recorded { ReleaseCause::Abandoned } else { cause }
    }

    /// Releases the claim, and retries as long as the lease lasts. The release of an abandoned run has the
    /// same effect as the end of the lease, so its retries end then. Other releases are retried further: see
    /// [`Patience`].
    async fn release_to_the_end(self: Arc<Self>, cause: ReleaseCause, retry_after: Duration) {
        let mut pauses = backoff().build();
        let mut patience = Patience::new(&self.call);
        while let Err(error) = self.release(cause, retry_after, true).await {
            let remaining = self.lease.held_until().saturating_duration_since(Instant::now());
            let goes_on = if !remaining.is_zero() && error.is_transient() {
                sleep(pauses.next().unwrap_or(LEAST_TIMEOUT).min(remaining)).await;
                true
            } else {
                cause != ReleaseCause::Abandoned && patience.wait_after(&error).await
            };
            if !goes_on {
                return self.report(&Event::RELEASE_FAILED.by(&error));
            }
        }
    }

    /// Releases the claim in the background.
    pub(crate) fn release_behind(self: &Arc<Self>, cause: ReleaseCause, retry_after: Duration) {
        self.call.finish_behind(Work::Release, self.clone().release_to_the_end(cause, retry_after));
    }
}

/// How long the engine retries a release for which no caller waits. The store accepts a release even after
/// the lease is over. So an outage that is longer than a lease does not by itself put a key in doubt or make
/// the next attempt `recovered`.
pub(crate) struct Patience {
    begin: Instant,
    pauses: ExponentialBackoff,
    process: Process,
    room: Option<OwnedSemaphorePermit>,
}

impl Patience {
    pub(crate) fn new<S: Store>(call: &Call<S>) -> Self {
        let process = call.process.clone();
        Self { begin: Instant::now(), pauses: late_backoff().build(), process, room: None }
    }

    /// Waits until the next try after this error. Returns whether there is a next try.
    pub(crate) async fn wait_after(&mut self, error: &StoreError) -> bool {
        if self.room.is_none() {
            self.room = self.process.background.room_for_release();
        }
        if self.room.is_none() || !error.is_transient() || self.begin.elapsed() >= LONGEST_RETRIES {
            return false;
        }
        sleep(self.pauses.next().unwrap_or(LONGEST_PAUSE)).await;
        true
    }
}
