//! One attempt, from its grant to its end: recorded, released, abandoned or lost.
//!
//! Owns the rule that a claim is never simply forgotten: whatever way the caller goes away, the
//! attempt's drop sees to its end.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use backon::BackoffBuilder;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use super::call::Prepared;
use super::keeper::Kept;
use super::lease::Lease;
use super::report::{self, Event};
use super::wait::backoff;
use crate::context::{Ending, Outcome};
use crate::error::{Error, StoreError, StoreErrorKind};
use crate::protocol::{
    Complete, CompleteAnswer, Grant, Owner, Record, Release, ReleaseAnswer, ReleaseCause, Renew, RenewAnswer,
    Replay, StoredResult, Tombstone, Verdict,
};
use crate::store::Store;

/// The least time a store is given to take a result, whatever is left of the lease.
const LEAST_TIMEOUT: Duration = Duration::from_secs(1);

/// A claim, shared by all that act on it.
pub(super) struct Claimed<S> {
    call: Arc<Prepared<S>>,
    owner: Owner,
    grant: Grant,
    pub(super) lease: Lease,
}

/// One attempt.
pub(super) struct Attempt<S: Store> {
    claimed: Arc<Claimed<S>>,
    started: Instant,
    phase: Phase,
}

enum Phase {
    /// The body was not started.
    Unused,
    /// The body may run.
    Running,
    /// The body is done, without a result.
    Releasing(ReleaseCause),
    /// The body is done; this must be recorded.
    Recording(Complete),
    /// Nothing is left to do.
    Over,
}

/// What became of a result.
pub(super) enum Recorded {
    /// It is the caller's: recorded, or nobody else's is.
    Kept,
    /// Another attempt's result is the recorded one.
    Superseded(Replay),
    /// Another attempt has the claim.
    Lost(Error),
}

impl<S: Store> Attempt<S> {
    pub(super) fn new(call: &Arc<Prepared<S>>, owner: Owner, grant: Grant, sent: Instant) -> Self {
        let lease = Lease::new(call.policy.lease, grant.lease_left, sent);
        call.span.record("attempt", grant.attempt);
        let claimed = Arc::new(Claimed { call: call.clone(), owner, grant, lease });
        Self { claimed, started: Instant::now(), phase: Phase::Unused }
    }

    pub(super) fn call(&self) -> &Prepared<S> {
        &self.claimed.call
    }

    pub(super) fn claimed(&self) -> &Arc<Claimed<S>> {
        &self.claimed
    }

    pub(super) fn grant(&self) -> Grant {
        self.claimed.grant
    }

    fn report(&self, event: Event<'_>) {
        self.call().report(event, self.claimed.grant.attempt);
    }

    fn body_ended(&mut self) {
        report::body_ran(&self.call().key, self.started.elapsed());
        let Grant { attempt, recovered, .. } = self.claimed.grant;
        self.call().observe(Outcome::Executed { attempt, recovered });
    }

    /// From now on the body may have had its effect.
    pub(super) fn start(&mut self) {
        self.phase = Phase::Running;
    }

    /// The body failed in a way worth retrying.
    pub(super) async fn release(&mut self) {
        self.body_ended();
        self.call().end(Ending::Released { attempt: self.claimed.grant.attempt });
        self.give_up(ReleaseCause::Failed).await;
    }

    /// The body panicked.
    pub(super) async fn abandon(&mut self) {
        self.give_up(ReleaseCause::Abandoned).await;
    }

    async fn give_up(&mut self, cause: ReleaseCause) {
        self.phase = Phase::Releasing(cause);
        if let Err(error) = self.claimed.release(cause).await {
            // The caller is not kept for it; what is left to do is done behind it.
            self.report(Event::ReleaseFailed(&error));
            self.claimed.release_behind(cause);
        }
        self.phase = Phase::Over;
    }

    /// The body is done; records its result.
    pub(super) async fn record(&mut self, verdict: Verdict, result: StoredResult) -> Recorded {
        self.body_ended();
        if verdict == Verdict::Failed {
            self.call().end(Ending::Terminal);
        }
        let request = self.claimed.complete_request(verdict, result);
        self.phase = Phase::Recording(request.clone());
        let completed = self.claimed.complete(request).await;
        self.phase = Phase::Over;
        match completed {
            Ok(CompleteAnswer::Done) => Recorded::Kept,
            Ok(CompleteAnswer::Lost) => self.settle().await,
            Err(error) => self.unrecorded(Some(&error)),
        }
    }

    /// The body has a result, but the claim was not ours any more.
    async fn settle(&mut self) -> Recorded {
        let ours = |record: &Record| record.fence == self.claimed.grant.fence;
        match self.claimed.look().await {
            Ok(Some(record)) => match record.replay() {
                // Attempts that ran out are nobody's result.
                Some(replay) if replay.result == StoredResult::Tombstone(Tombstone::Exhausted) => {
                    self.unrecorded(None)
                }
                Some(replay) => Recorded::Superseded(replay),
                // In doubt, or released by an operator: no other result is there or on its way.
                None if ours(&record) => self.unrecorded(None),
                None => Recorded::Lost(self.lost()),
            },
            Ok(None) => self.unrecorded(None),
            Err(_) => Recorded::Lost(self.lost()),
        }
    }

    fn unrecorded(&self, error: Option<&StoreError>) -> Recorded {
        self.report(Event::Unrecorded(error));
        self.call().observe(Outcome::Unrecorded { attempt: self.claimed.grant.attempt });
        Recorded::Kept
    }

    fn lost(&self) -> Error {
        self.report(Event::LeaseLost);
        self.call().refuse(Error::LeaseLost { call: self.call().id() })
    }

    /// The lease was lost while the body ran: the result of who has taken over, if there is one.
    pub(super) async fn after_loss(&mut self) -> Result<Replay, Error> {
        self.phase = Phase::Over;
        let lost = self.lost();
        match self.claimed.look().await {
            Ok(Some(record)) => record.replay().ok_or(lost),
            Ok(None) | Err(_) => Err(lost),
        }
    }
}

impl<S: Store> Drop for Attempt<S> {
    fn drop(&mut self) {
        let claimed = self.claimed.clone();
        claimed.lease.end();
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Over => {}
            Phase::Unused => claimed.release_behind(ReleaseCause::Unused),
            Phase::Running => claimed.release_behind(ReleaseCause::Abandoned),
            Phase::Releasing(cause) => claimed.release_behind(cause),
            Phase::Recording(request) => {
                claimed.call.finish_behind(claimed.clone().complete_behind(request));
            }
        }
    }
}

impl<S: Store> Claimed<S> {
    fn report(&self, event: Event<'_>) {
        self.call.report(event, self.grant.attempt);
    }

    /// Renews the lease once, and says whether that was answered.
    pub(super) async fn renew(self: Arc<Self>) -> bool {
        let policy = &self.call.policy;
        let request = Renew { owner: self.owner, fence: self.grant.fence, lease: self.call.lease() };
        let sent = (Instant::now(), std::time::Instant::now());
        let patience = (policy.lease / 3).max(Duration::from_millis(50)).min(policy.store_timeout);
        let answer = match timeout(patience, self.call.store.renew(&self.call.key, &request)).await {
            Ok(answer) => answer,
            Err(_) => Err(unanswered("the renewal", patience)),
        };
        match answer {
            Ok(RenewAnswer::Held) => self.lease.confirm(sent.0, sent.1),
            Ok(RenewAnswer::Lost) => self.lease.lose(),
            Err(error) => {
                self.report(Event::RenewalFailed(&error));
                return false;
            }
        }
        true
    }

    fn complete_request(&self, verdict: Verdict, result: StoredResult) -> Complete {
        Complete { owner: self.owner, fence: self.grant.fence, verdict, result, ttl: self.call.policy.ttl }
    }

    /// Records a result; tried again for as long as the lease is held, and as any operation of the
    /// store is. Later than the lease it still counts, if nobody has taken over.
    async fn complete(&self, mut request: Complete) -> Result<CompleteAnswer, StoreError> {
        let mut pauses = backoff().build();
        let end = self.lease.held_until().max(Instant::now() + self.call.policy.store_timeout);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let patience = left.max(LEAST_TIMEOUT).min(self.call.policy.store_timeout);
            let asked = timeout(patience, self.call.store.complete(&self.call.key, &request)).await;
            let error = match asked {
                Ok(Ok(answer)) => {
                    if answer == CompleteAnswer::Done {
                        self.report(Event::Completed);
                    }
                    self.call.store.waiters().ring(&self.call.key);
                    return Ok(answer);
                }
                Ok(Err(error)) => error,
                Err(_) => unanswered("the result", patience),
            };
            let left = end.saturating_duration_since(Instant::now());
            let tombstone = StoredResult::Tombstone(Tombstone::TooLarge);
            if error.kind() == StoreErrorKind::TooLarge && request.result != tombstone {
                request.result = tombstone;
            } else if !error.is_transient() || left.is_zero() {
                return Err(error);
            } else {
                sleep(pauses.next().unwrap_or(LEAST_TIMEOUT).min(left)).await;
            }
        }
    }

    async fn complete_behind(self: Arc<Self>, request: Complete) {
        match self.complete(request).await {
            Ok(CompleteAnswer::Done) => {}
            Ok(CompleteAnswer::Lost) => self.report(Event::Unrecorded(None)),
            Err(error) => self.report(Event::Unrecorded(Some(&error))),
        }
    }

    async fn release(&self, cause: ReleaseCause) -> Result<ReleaseAnswer, StoreError> {
        let request =
            Release { owner: self.owner, fence: self.grant.fence, cause, retry_after: Duration::ZERO };
        let patience = self.call.policy.store_timeout;
        let answer = timeout(patience, self.call.store.release(&self.call.key, &request))
            .await
            .unwrap_or_else(|_| Err(unanswered("the release", patience)))?;
        match answer {
            ReleaseAnswer::Released => self.report(Event::Released),
            ReleaseAnswer::InDoubt => self.report(Event::InDoubt),
            ReleaseAnswer::Lost => {}
        }
        self.call.store.waiters().ring(&self.call.key);
        Ok(answer)
    }

    /// Gives the claim up, tried again until the lease has run out by itself.
    async fn release_until_held(self: Arc<Self>, cause: ReleaseCause) {
        let mut pauses = backoff().build();
        while let Err(error) = self.release(cause).await {
            let left = self.lease.held_until().saturating_duration_since(Instant::now());
            if left.is_zero() || !error.is_transient() {
                return self.report(Event::ReleaseFailed(&error));
            }
            sleep(pauses.next().unwrap_or(LEAST_TIMEOUT).min(left)).await;
        }
    }

    fn release_behind(self: &Arc<Self>, cause: ReleaseCause) {
        self.call.finish_behind(self.clone().release_until_held(cause));
    }

    async fn look(&self) -> Result<Option<Record>, StoreError> {
        let patience = self.call.policy.store_timeout;
        timeout(patience, self.call.store.get(&self.call.key))
            .await
            .unwrap_or_else(|_| Err(unanswered("the record", patience)))
    }
}

impl<S: Store> Kept for Claimed<S> {
    fn lease(&self) -> &Lease {
        &self.lease
    }

    fn runtime(&self) -> &Handle {
        &self.call.runtime
    }

    fn renew_from_outside(self: Arc<Self>) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        Box::pin(self.renew())
    }
}

/// The error of a store that did not answer in time.
pub(super) fn unanswered(what: &str, patience: Duration) -> StoreError {
    StoreError::outcome_unknown(format!("it did not answer about {what} within {patience:?}"))
}
