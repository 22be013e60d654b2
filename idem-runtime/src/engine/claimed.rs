//! One claim and its requests to the store: renewals, the result, the release.
//!
//! Shared by the attempt, by the code that renews its lease, and by its work in the background.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use backon::BackoffBuilder;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::background::Work;
use super::call::Prepared;
use super::codec::NotEncoded;
use super::context::{Context, Details};
use super::lease::{Lease, Sent};
use super::patience::Patience;
use super::process::Process;
use super::renewal_thread::RenewableLease;
use super::report::{Event, Stopwatch};
use super::retry::{LEAST_TIMEOUT, backoff, retry_until, unanswered, within};
use super::steps::{Log, Recorder, settle};
use super::waiters::{StoreIdentity, Waiters};
use crate::error::{NotStored, StoreError, StoreErrorKind};
use idem_core::RecordKey;
use idem_core::Store;
use idem_core::defaults::LONGEST;
use idem_core::protocol::{
    Complete, CompleteAnswer, Grant, Owner, Record, Release, ReleaseAnswer, ReleaseCause, Renew, RenewAnswer,
    StoredResult, Tombstone, Verdict,
};

/// A claim, shared by everything that acts on it.
pub(super) struct Claimed<S> {
    pub(super) call: Arc<Prepared<S>>,
    pub(super) owner: Owner,
    pub(super) grant: Grant,
    pub(super) lease: Lease,
    pub(super) log: Log,
}

/// How a claim is released.
#[derive(Clone, Copy)]
pub(super) struct GiveUp {
    pub(super) cause: ReleaseCause,
    /// How long until the key is due again.
    pub(super) retry_after: Duration,
}

impl From<ReleaseCause> for GiveUp {
    fn from(cause: ReleaseCause) -> Self {
        Self { cause, retry_after: Duration::ZERO }
    }
}

impl<S: Store> Claimed<S> {
    /// Renews the lease once, and returns whether the store answered.
    pub(super) async fn renew(self: Arc<Self>) -> bool {
        let policy = &self.call.policy;
        let sent = Sent::now(&self.call.process, self.call.lease());
        let request = Renew::new(self.owner, self.grant.fence, sent.lease);
        let patience = (policy.lease / 3).max(Duration::from_millis(50)).min(policy.store_timeout);
        let answer = match within(patience, self.call.store.renew(&self.call.key, &request)).await {
            Ok(answer) => answer,
            Err(_) => Err(unanswered("the renewal", patience)),
        };
        match answer {
            Ok(RenewAnswer::Held) => self.lease.confirm(sent),
            // No other worker runs the body, and this one knows best what happens, so the body continues.
            Ok(RenewAnswer::HeldInDoubt) => {
                self.lease.confirm(sent);
                if self.lease.is_first_doubt() {
                    self.report(Event::HeldInDoubt);
                }
            }
            Ok(_) => self.lease.lose(),
            Err(error) => {
                self.report(Event::RenewalFailed(&error));
                return false;
            }
        }
        true
    }

    pub(super) fn complete_request(&self, verdict: Verdict, result: StoredResult) -> Complete {
        Complete::new(self.owner, self.grant.fence, verdict, result, self.call.policy.ttl)
    }

    /// Records a result. Retries for the store timeout; the caller does not wait longer, and recording goes on behind it.
    pub(super) async fn complete(&self, request: &mut Complete) -> Result<CompleteAnswer, StoreError> {
        let answer = self.complete_until(request, || Instant::now() + self.call.policy.store_timeout).await;
        // A tombstone was reported when it was made.
        if matches!((&answer, &request.result), (Ok(CompleteAnswer::Done), StoredResult::Value(_))) {
            self.report(Event::Completed);
        }
        answer
    }

    pub(super) async fn complete_until(
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
            let asked = retry_until("the result", &end, self.call.policy.store_timeout, ask).await;
            let tombstone = StoredResult::Tombstone(Tombstone::TooLarge);
            match &asked {
                Err(error) if error.kind() == StoreErrorKind::TooLarge && request.result != tombstone => {
                    let reason = NotEncoded::Refused(error.to_string());
                    self.report(Event::NotStored(&reason));
                    request.result = tombstone;
                    continue;
                }
                Err(_) => {}
                Ok(_) => Waiters::ring_in(&self.call.store, &self.call.key),
            }
            return asked;
        }
    }

    /// Until when the steps are read and recorded: while the lease is held, and at least for the store timeout.
    pub(super) fn asks_until(&self) -> Instant {
        self.lease.held_until().max(Instant::now() + self.call.policy.store_timeout)
    }

    pub(super) async fn complete_behind(self: Arc<Self>, mut request: Complete) {
        match self.complete(&mut request).await {
            Ok(CompleteAnswer::Done) => {}
            Ok(_) => self.give_up_on(&request, None),
            Err(error) => self.record_late(request, &error),
        }
    }

    /// Releases the claim once.
    pub(super) async fn release(&self, how: GiveUp) -> Result<(), StoreError> {
        self.try_to_release(how, false).await
    }

    async fn try_to_release(
        &self,
        GiveUp { cause, retry_after }: GiveUp,
        again: bool,
    ) -> Result<(), StoreError> {
        let cause =
            if cause == ReleaseCause::Unused { cause } else { self.with_its_steps(cause, again).await };
        let mut request = Release::new(self.owner, self.grant.fence, cause);
        if cause == ReleaseCause::Failed {
            request = request.with_retry_after(retry_after.min(LONGEST));
        }
        let patience = self.call.policy.store_timeout;
        let answer = within(patience, self.call.store.release(&self.call.key, &request))
            .await
            .unwrap_or_else(|_| Err(unanswered("the release", patience)))?;
        match answer {
            ReleaseAnswer::Released => self.report(Event::Released),
            ReleaseAnswer::InDoubt => self.report(Event::InDoubt),
            _ => {}
        }
        Waiters::ring_in(&self.call.store, &self.call.key);
        Ok(())
    }

    /// Records the steps that have ended, so that they do not run again. If that fails, the store does not know all that the
    /// body did, so a failed body counts as abandoned. `again` if a failure to record them counts for nothing, because it was long ago.
    async fn with_its_steps(&self, cause: ReleaseCause, again: bool) -> ReleaseCause {
        let recorded = match self.log.is_settled() {
            Ok(true) => true,
            Err(()) if !again => false,
            Ok(false) | Err(()) => settle(self).await.is_ok(),
        };
        if cause == ReleaseCause::Failed && !recorded { ReleaseCause::Abandoned } else { cause }
    }

    /// Releases the claim, and retries: until the lease has ended by itself, if that says the same, and otherwise for as long as
    /// results are retried.
    async fn release_to_the_end(self: Arc<Self>, how: GiveUp) {
        let mut pauses = backoff().build();
        let mut patience = Patience::new(&self.call);
        while let Err(error) = self.try_to_release(how, true).await {
            let left = self.lease.held_until().saturating_duration_since(Instant::now());
            let goes_on = if !left.is_zero() && error.is_transient() {
                sleep(pauses.next().unwrap_or(LEAST_TIMEOUT).min(left)).await;
                true
            } else {
                how.cause != ReleaseCause::Abandoned && patience.wait_after(&error).await
            };
            if !goes_on {
                return self.report(Event::ReleaseFailed(&error));
            }
        }
    }

    pub(super) fn release_behind(self: &Arc<Self>, how: GiveUp) {
        self.call.finish_behind(Work::Release, self.clone().release_to_the_end(how));
    }

    pub(super) async fn look(&self) -> Result<Option<Record>, StoreError> {
        let patience = self.call.policy.store_timeout;
        within(patience, self.call.store.get(&self.call.key))
            .await
            .unwrap_or_else(|_| Err(unanswered("the record", patience)))
    }
}

/// Why a duplicate does not get this result; `None` if it does.
pub(super) fn not_stored(result: &StoredResult) -> Option<NotStored> {
    match result {
        StoredResult::Value(_) => None,
        StoredResult::Tombstone(reason) => Some((*reason).into()),
    }
}

impl<S: Store> Details for Claimed<S> {
    fn key(&self) -> &RecordKey {
        &self.call.key
    }

    fn grant(&self) -> Option<Grant> {
        Some(self.grant)
    }

    fn enclosing(&self) -> Option<&Context> {
        self.call.enclosing.as_ref()
    }

    fn recorder(self: Arc<Self>) -> Option<Arc<dyn Recorder>> {
        Some(self)
    }

    fn claim_ended(self: Arc<Self>) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        Some(Box::pin(async move { self.lease.ended().await }))
    }

    fn holds(&self, key: &RecordKey, store: StoreIdentity) -> bool {
        // Once the call is over, nobody waits for itself.
        !self.lease.is_over() && self.call.key == *key && StoreIdentity::of(&self.call.store) == Some(store)
    }
}

impl<S: Store> RenewableLease for Claimed<S> {
    fn lease(&self) -> &Lease {
        &self.lease
    }

    fn runtime(&self) -> &Handle {
        &self.call.runtime
    }

    fn process(&self) -> &Process {
        &self.call.process
    }

    fn renew_from_outside(self: Arc<Self>) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        Box::pin(self.renew())
    }
}
