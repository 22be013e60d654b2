//! One attempt, from its grant to its end: recorded, released, abandoned or lost.
//!
//! Owns the rule that a claim is never simply forgotten: whatever way the caller goes away, the
//! attempt's drop sees to its end.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use backon::BackoffBuilder;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::call::Prepared;
use super::insist::{LEAST_TIMEOUT, insist, unanswered, within};
use super::keeper::Kept;
use super::lease::{Lease, Sent};
use super::operation::SHORTEST_LEASE;
use super::report::{Event, Stopwatch};
use super::steps::{Log, Recorder as _, settle};
use super::wait::backoff;
use crate::context::{Details, Ending, Outcome};
use crate::error::{Error, StoreError, StoreErrorKind};
use crate::key::RecordKey;
use crate::protocol::{
    Complete, CompleteAnswer, Grant, Owner, Record, Release, ReleaseAnswer, ReleaseCause, Renew, RenewAnswer,
    Replay, StoredResult, Tombstone, Verdict,
};
use crate::store::Store;

/// A claim, shared by all that act on it.
pub(super) struct Claimed<S> {
    pub(super) call: Arc<Prepared<S>>,
    pub(super) owner: Owner,
    pub(super) grant: Grant,
    pub(super) lease: Lease,
    pub(super) log: Log,
}

/// One attempt.
pub(super) struct Attempt<S: Store> {
    claimed: Arc<Claimed<S>>,
    stopwatch: Stopwatch,
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
    pub(super) fn new(call: &Arc<Prepared<S>>, owner: Owner, grant: Grant, sent: Sent) -> Self {
        let lease = Lease::new(call.policy.lease, grant.lease_left, sent);
        call.span.record("attempt", grant.attempt);
        // Who starts a key anew has nothing to look for.
        let log = Log::new(grant.attempt == 1, call.policy.recovers && grant.recovered);
        let claimed = Arc::new(Claimed { call: call.clone(), owner, grant, lease, log });
        Self { claimed, stopwatch: Stopwatch::start(), phase: Phase::Unused }
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
        self.stopwatch.body_ran(&self.call().key);
        let Grant { attempt, recovered, .. } = self.claimed.grant;
        self.call().observe(Outcome::Executed { attempt, recovered });
    }

    /// From now on the body may have had its effect.
    pub(super) fn start(&mut self) {
        self.phase = Phase::Running;
    }

    /// Whether the claim is given up whatever the body's error: not for that, but as its `recover` said.
    pub(super) fn is_decided(&self) -> bool {
        self.claimed.log.cause().is_some()
    }

    /// The body failed in a way worth retrying, or `recover` did.
    pub(super) async fn release(&mut self) {
        let cause = self.claimed.log.cause().unwrap_or(ReleaseCause::Failed);
        let released = Ending::Released { attempt: self.claimed.grant.attempt };
        let ending = match (cause, self.claimed.log.refused()) {
            // Nobody is asked again, so a person is.
            (ReleaseCause::Doubtful, _) if !self.call().policy.settles_doubt() => {
                Ending::Refused(Error::InDoubt { call: self.call().id() })
            }
            (ReleaseCause::Failed, Some(refused)) => Ending::Refused(refused),
            _ => released,
        };
        if cause != ReleaseCause::Unused {
            self.body_ended();
        }
        self.call().end(ending);
        self.give_up(cause).await;
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
        // There for who drops this meanwhile, too.
        self.phase = Phase::Recording(request);
        let completed = match &mut self.phase {
            Phase::Recording(request) => self.claimed.complete(request).await,
            _ => Ok(CompleteAnswer::Lost),
        };
        self.phase = Phase::Over;
        match completed {
            Ok(CompleteAnswer::Done) => Recorded::Kept,
            Ok(CompleteAnswer::Lost) => Box::pin(self.settle()).await,
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
        let claimed = &self.claimed;
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
    /// Renews the lease once, and says whether that was answered.
    pub(super) async fn renew(self: Arc<Self>) -> bool {
        let policy = &self.call.policy;
        let request = Renew { owner: self.owner, fence: self.grant.fence, lease: self.call.lease() };
        let sent = Sent::now();
        let patience = (policy.lease / 3).max(Duration::from_millis(50)).min(policy.store_timeout);
        let answer = match within(patience, self.call.store.renew(&self.call.key, &request)).await {
            Ok(answer) => answer,
            Err(_) => Err(unanswered("the renewal", patience)),
        };
        match answer {
            Ok(RenewAnswer::Held) => self.lease.confirm(sent),
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
    async fn complete(&self, request: &mut Complete) -> Result<CompleteAnswer, StoreError> {
        loop {
            let ask = || self.call.store.complete(&self.call.key, request);
            let asked = insist("the result", || self.asks_until(), self.call.policy.store_timeout, ask).await;
            let tombstone = StoredResult::Tombstone(Tombstone::TooLarge);
            match &asked {
                Err(error) if error.kind() == StoreErrorKind::TooLarge && request.result != tombstone => {
                    request.result = tombstone;
                    continue;
                }
                Err(_) => {}
                Ok(answer) => {
                    if *answer == CompleteAnswer::Done {
                        self.report(Event::Completed);
                    }
                    self.call.store.waiters().ring(&self.call.key);
                }
            }
            return asked;
        }
    }

    /// Until when the store is asked to record something: for as long as the lease is held, and as any
    /// operation of the store is.
    pub(super) fn asks_until(&self) -> Instant {
        self.lease.held_until().max(Instant::now() + self.call.policy.store_timeout)
    }

    async fn complete_behind(self: Arc<Self>, mut request: Complete) {
        match self.complete(&mut request).await {
            Ok(CompleteAnswer::Done) => {}
            Ok(CompleteAnswer::Lost) => self.report(Event::Unrecorded(None)),
            Err(error) => self.report(Event::Unrecorded(Some(&error))),
        }
    }

    async fn release(&self, cause: ReleaseCause) -> Result<(), StoreError> {
        let cause = if cause == ReleaseCause::Unused { cause } else { self.with_its_steps(cause).await };
        if cause == ReleaseCause::Abandoned && self.call.policy.recovers && !self.call.policy.settles_doubt()
        {
            return self.lapse().await;
        }
        let request =
            Release { owner: self.owner, fence: self.grant.fence, cause, retry_after: Duration::ZERO };
        let patience = self.call.policy.store_timeout;
        let answer = within(patience, self.call.store.release(&self.call.key, &request))
            .await
            .unwrap_or_else(|_| Err(unanswered("the release", patience)))?;
        match answer {
            ReleaseAnswer::Released => self.report(Event::Released),
            ReleaseAnswer::InDoubt => self.report(Event::InDoubt),
            ReleaseAnswer::Lost => {}
        }
        self.call.store.waiters().ring(&self.call.key);
        Ok(())
    }

    /// Has recorded what ended, so that it does not run again. Where that fails, what happened is less known
    /// than the body's error says.
    async fn with_its_steps(&self, cause: ReleaseCause) -> ReleaseCause {
        let recorded = match self.log.is_settled() {
            Ok(true) => true,
            Ok(false) => settle(self).await.is_ok(),
            Err(()) => false,
        };
        if cause == ReleaseCause::Failed && !recorded { ReleaseCause::Abandoned } else { cause }
    }

    /// Lets the lease run out. A released key is not known to have been abandoned, and `recover` is asked
    /// about one that was.
    async fn lapse(&self) -> Result<(), StoreError> {
        let request = Renew { owner: self.owner, fence: self.grant.fence, lease: SHORTEST_LEASE };
        let patience = self.call.policy.store_timeout;
        let answer = within(patience, self.call.store.renew(&self.call.key, &request))
            .await
            .unwrap_or_else(|_| Err(unanswered("the end of the lease", patience)))?;
        if answer == RenewAnswer::Held {
            self.report(Event::Released);
        }
        self.call.store.waiters().ring(&self.call.key);
        Ok(())
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
        within(patience, self.call.store.get(&self.call.key))
            .await
            .unwrap_or_else(|_| Err(unanswered("the record", patience)))
    }
}

impl<S: Store> Details for Claimed<S> {
    fn key(&self) -> &RecordKey {
        &self.call.key
    }

    fn grant(&self) -> Option<Grant> {
        Some(self.grant)
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
