//! Recording a result under a claim.
//!
//! Owns the request, its retries while the caller waits, and the tombstone of a result that is too large for the store. `late`
//! goes on when the caller waits no longer.

use tokio::time::Instant;

use crate::engine::body::steps::Recorder as _;
use crate::engine::claim::claimed::Claimed;
use crate::engine::claim::waiters::Waiters;
use crate::engine::record::encoding::NotEncoded;
use crate::engine::report::{Event, Stopwatch};
use crate::engine::retry::retry_until;
use crate::error::{NotStored, StoreError, StoreErrorKind};
use idem_core::Store;
use idem_core::protocol::{Complete, CompleteAnswer, StoredResult, Tombstone, Verdict};

impl<S: Store> Claimed<S> {
    /// The request that records this result.
    pub(crate) fn complete_request(&self, verdict: Verdict, result: StoredResult) -> Complete {
        Complete::new(self.owner, self.grant.fence, verdict, result, self.call.policy.ttl)
    }

    /// Records a result. Retries for the store timeout; the caller does not wait longer, and recording goes on behind it.
    pub(crate) async fn complete(&self, request: &mut Complete) -> Result<CompleteAnswer, StoreError> {
        let answer = self.complete_until(request, || Instant::now() + self.call.policy.store_timeout).await;
        // A tombstone was reported when it was made.
        if matches!((&answer, &request.result), (Ok(CompleteAnswer::Done), StoredResult::Value(_))) {
            self.report(Event::Completed);
        }
        answer
    }

    /// As [`complete`](Self::complete), until `end`.
    pub(crate) async fn complete_until(
        &self,
        request: &mut Complete,
        end: impl Fn() -> Instant,
    ) -> Result<CompleteAnswer, StoreError> {
        loop {
            let (call, request_now) = (&self.call, &*request);
            let ask = || async move {
                let time = Stopwatch::start();
                let answer = call.store.complete(&call.key, request_now).await;
                time.store_answered::<S, _, _>(&call.key, "complete", &answer);
                answer
            };
            let answer = retry_until("the result", &end, self.call.policy.store_timeout, ask).await;
            let tombstone = StoredResult::Tombstone(Tombstone::TooLarge);
            match &answer {
                Err(error) if error.kind() == StoreErrorKind::TooLarge && request.result != tombstone => {
                    let reason = NotEncoded::Refused(error.to_string());
                    self.report(Event::NotStored(&reason));
                    request.result = tombstone;
                    continue;
                }
                Err(_) => {}
                Ok(_) => Waiters::wake_in(&self.call.store, &self.call.key),
            }
            return answer;
        }
    }
}

/// Why a duplicate does not get this result; `None` if it does.
pub(crate) fn not_stored(result: &StoredResult) -> Option<NotStored> {
    match result {
        StoredResult::Value(_) => None,
        StoredResult::Tombstone(reason) => Some((*reason).into()),
    }
}
