//! Recording a result after its caller has the value or has gone away, as long as no other call has taken
//! over.
//!
//! Owns how long the engine keeps retrying. The store accepts a result even after the lease is over. So after
//! an outage that is longer than a lease, the body need not run again.

use std::sync::Arc;

use backon::BackoffBuilder;
use tokio::time::{Instant, sleep};

use crate::engine::claim::claimed::{AnyClaim as _, Claimed};
use crate::engine::record::attempt::not_stored;
use crate::engine::record::background::{LONGEST, LateRoom, Unrecorded};
use crate::engine::report::Event;
use crate::engine::retry::{LONGEST_PAUSE, late_backoff};
use crate::error::StoreError;
use idem_core::Store;
use idem_core::protocol::{Complete, CompleteAnswer, StoredResult};

impl<S: Store> Claimed<S> {
    /// Records a result whose caller has gone away.
    pub(crate) fn complete_behind(self: Arc<Self>, request: Complete) -> impl Future<Output = ()> + Send {
        // `late` is made outside the future, so that the result is reported even if the runtime is shut down
        // before the first poll.
        let mut late = Late { claimed: self, waiting: Some(request), _room: None };
        async move {
            let claimed = late.claimed.clone();
            let Some(request) = &mut late.waiting else { return };
            let patience = claimed.call.policy.store_timeout;
            let answer = claimed.complete(request, || Instant::now() + patience).await;
            let Some(request) = late.waiting.take() else { return };
            match answer {
                Ok(CompleteAnswer::Done) if not_stored(&request.result).is_none() => {
                    claimed.report(&Event::COMPLETED);
                }
                // A tombstone was reported when it was made.
                Ok(CompleteAnswer::Done) => {}
                Ok(_) => claimed.report_unrecorded(&request, None),
                Err(error) => claimed.record_late(request, &error),
            }
        }
    }

    /// Continues to record a result after `error`, if a retry may help and the limits allow it. Gives the
    /// result up otherwise.
    pub(crate) fn record_late(self: &Arc<Self>, request: Complete, error: &StoreError) {
        let bytes = match &request.result {
            StoredResult::Value(bytes) => bytes.len(),
            StoredResult::Tombstone(_) => 0,
        };
        let room = if error.is_transient() { LateRoom::take(&self.call.process, bytes) } else { None };
        let Some(room) = room else {
            return self.report_unrecorded(&request, Some(error));
        };
        self.report(&Event::NOT_YET_RECORDED.by(error));
        let late = Late { claimed: self.clone(), waiting: Some(request), _room: Some(room) };
        self.call.runtime.spawn(late.record());
    }

    /// Reports that the engine stops trying to record this result.
    pub(crate) fn report_unrecorded(&self, request: &Complete, error: Option<&StoreError>) {
        self.report(&error.map_or(Event::SUPERSEDED, |error| Event::UNRECORDED.by(error)));
        self.call.process.late_recording().tell(|| Unrecorded {
            call: self.call.id(),
            attempt: self.grant.attempt,
            verdict: request.verdict,
            result: request.result.clone(),
            ttl: request.ttl,
            error: error.cloned(),
        });
    }
}

/// A result that waits to be recorded.
struct Late<S: Store> {
    claimed: Arc<Claimed<S>>,
    /// `None` once it is recorded or given up.
    waiting: Option<Complete>,
    /// `None` during the first try, because only retries count against the limits.
    _room: Option<LateRoom>,
}

impl<S: Store> Late<S> {
    async fn record(mut self) {
        let claimed = self.claimed.clone();
        let begin = Instant::now();
        let mut pauses = late_backoff().build();
        loop {
            sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
            // The request stays in `waiting` during the try, so that `drop` reports it if the runtime is shut
            // down.
            let Some(request) = &mut self.waiting else { return };
            let answer = claimed.complete(request, Instant::now).await;
            let is_over = begin.elapsed() >= LONGEST;
            let last_error = match answer {
                Ok(CompleteAnswer::Done) => {
                    self.waiting = None;
                    return claimed.report(&Event::RECORDED_LATE);
                }
                Ok(_) => None,
                Err(error) if !error.is_transient() || is_over => Some(error),
                Err(_) => continue,
            };
            if let Some(request) = self.waiting.take() {
                claimed.report_unrecorded(&request, last_error.as_ref());
            }
            return;
        }
    }
}

impl<S: Store> Drop for Late<S> {
    fn drop(&mut self) {
        if let Some(request) = self.waiting.take() {
            let ended = StoreError::outcome_unknown("its runtime was shut down first");
            self.claimed.report_unrecorded(&request, Some(&ended));
        }
    }
}
