//! One granted claim, shared by everything that acts on it: the attempt, the renewals of its lease, its
//! steps, the context of its body, and its work in the background.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use backon::BackoffBuilder;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep};

use super::waiters::StoreIdentity;
use crate::engine::body::steps::{Done, Failed, Job, Log};
use crate::engine::lease::Lease;
use crate::engine::prepare::{Call, Details};
use crate::engine::report::Event;
use crate::engine::retry::{answered, backoff, retry_until};
use crate::error::{StoreError, StoreErrorKind};
use idem_core::Store;
use idem_core::protocol::{
    Grant, Owner, Record, RecordStep, RecordStepAnswer, RecordedStep, Renew, RenewAnswer, State,
    StoredResult, Tombstone,
};

pub(crate) struct Claimed<S> {
    pub(crate) call: Arc<Call<S>>,
    pub(crate) held: Held,
}

/// The part of a claim that does not depend on the type of its store.
pub(crate) struct Held {
    pub(crate) owner: Owner,
    pub(crate) grant: Grant,
    pub(crate) lease: Lease,
    pub(crate) log: Log,
}

impl<S> Deref for Claimed<S> {
    type Target = Held;

    fn deref(&self) -> &Held {
        &self.held
    }
}

/// A claim without the type of its store, so that steps, contexts and renewals are not compiled for each
/// store.
pub(crate) trait AnyClaim: Send + Sync + 'static {
    fn call(&self) -> &Details;
    fn held(&self) -> &Held;
    fn store(&self) -> Option<StoreIdentity>;
    /// Renews the lease once, and returns whether the store answered.
    fn renew(self: Arc<Self>) -> BoxFuture<'static, bool>;
    /// Reads the steps of earlier runs. The returned job does not keep this claim alive.
    fn load(&self) -> Job;
    /// Records a step. The returned job does not keep this claim alive.
    fn record(&self, position: u32, step: RecordedStep) -> Job;

    fn report(&self, event: &Event<'_>) {
        self.call().report(event, self.held().grant.attempt);
    }
}

impl<S: Store> Claimed<S> {
    /// Until when requests to read and record steps are retried: until the lease is over, and at least for
    /// the store timeout.
    fn retries_until(&self) -> Instant {
        self.lease.held_until().max(Instant::now() + self.call.policy.store_timeout)
    }

    /// The record as the store has it now.
    pub(crate) async fn look(&self) -> Result<Option<Record>, StoreError> {
        answered("the record", self.call.policy.store_timeout, self.call.store.get(&self.call.key)).await
    }
}

impl<S: Store> AnyClaim for Claimed<S> {
    fn call(&self) -> &Details {
        &self.call
    }

    fn held(&self) -> &Held {
        &self.held
    }

    fn store(&self) -> Option<StoreIdentity> {
        StoreIdentity::of(&self.call.store)
    }

    fn renew(self: Arc<Self>) -> BoxFuture<'static, bool> {
        Box::pin(async move {
            let sent = self.call.send_time();
            let request = Renew::new(self.owner, self.grant.fence, sent.lease);
            let patience =
                (self.call.lease / 3).max(Duration::from_millis(50)).min(self.call.policy.store_timeout);
            match answered("the renewal", patience, self.call.store.renew(&self.call.key, &request)).await {
                Ok(RenewAnswer::Held) => self.lease.confirm(sent),
                // No other worker runs the body, and this worker knows best what happens. So the body
                // continues.
                Ok(RenewAnswer::HeldInDoubt) => {
                    self.lease.confirm(sent);
                    if self.lease.is_first_doubt() {
                        self.report(&Event::HELD_IN_DOUBT);
                    }
                }
                Ok(_) => self.lease.lose(),
                Err(error) => {
                    self.report(&Event::RENEWAL_FAILED.by(&error));
                    return false;
                }
            }
            true
        })
    }

    fn load(&self) -> Job {
        let (call, owner, fence, end) =
            (self.call.clone(), self.owner, self.grant.fence, self.retries_until());
        Box::pin(async move {
            let read =
                retry_until("the steps", || end, call.policy.store_timeout, || call.store.get(&call.key));
            let record = read.await.map_err(Failed::Store)?;
            let mine = record.filter(|record| {
                matches!(record.state, State::InFlight | State::InDoubt)
                    && record.owner == owner
                    && record.fence == fence
            });
            mine.map(|record| Done::Loaded(record.steps.into())).ok_or(Failed::Lost)
        })
    }

    fn record(&self, position: u32, step: RecordedStep) -> Job {
        let (call, end) = (Arc::clone(&self.call), self.retries_until());
        let mut request = RecordStep::new(self.owner, self.grant.fence, position, step);
        Box::pin(async move {
            let tombstone = StoredResult::Tombstone(Tombstone::TooLarge);
            loop {
                let ask = || call.store.record_step(&call.key, &request);
                match retry_until("the step", || end, call.policy.store_timeout, ask).await {
                    Ok(RecordStepAnswer::Recorded) => return Ok(Done::Recorded(request.step)),
                    Ok(_) => return Err(Failed::Lost),
                    Err(error)
                        if error.kind() == StoreErrorKind::TooLarge && request.step.result != tombstone =>
                    {
                        request.step.result = tombstone.clone();
                    }
                    Err(error) => return Err(Failed::Store(error)),
                }
            }
        })
    }
}

/// Returns when the claim is certainly held, or known to be lost. It asks the store only if the lease may be
/// over, or the key is in doubt.
pub(crate) async fn confirm(claim: &Arc<dyn AnyClaim>) -> Result<(), StoreError> {
    let lease = &claim.held().lease;
    if lease.held_until() > Instant::now() && !lease.is_doubted() {
        return Ok(());
    }
    // Boxed, because the renewal is rare, and otherwise the future of every step would have room for it.
    let until = Instant::now() + claim.call().policy.store_timeout;
    Box::pin(renew_before_start(claim, until)).await
}

/// Renews the claim before its body or a step starts. This is needed if the answer to the claim was late, the
/// lease may be over, or the key is in doubt. After an `Ok`, the caller must still check whether the claim is
/// lost.
pub(super) async fn renew_before_start(claim: &Arc<dyn AnyClaim>, until: Instant) -> Result<(), StoreError> {
    let lease = &claim.held().lease;
    let mut pauses = backoff().build();
    while !claim.clone().renew().await {
        let pause = pauses.next().unwrap_or(lease.length);
        if Instant::now() + pause >= until {
            return Err(StoreError::outcome_unknown(
                "it did not answer when asked to renew the claim before the body or a step starts",
            ));
        }
        sleep(pause).await;
    }
    // After the deadline of `with_deadline`, a renewal extends the lease by only a millisecond. So the lease
    // may be over when the answer arrives.
    if !lease.is_lost() && lease.held_until() <= Instant::now() {
        return Err(StoreError::outcome_unknown("the lease was over before the body or a step could start"));
    }
    Ok(())
}
