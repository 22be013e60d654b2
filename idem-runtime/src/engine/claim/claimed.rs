//! One granted claim, as everything that acts on it shares it: the attempt, the renewals of its lease, its steps, the context
//! of its body, and its work in the background.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use backon::BackoffBuilder;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::waiters::StoreIdentity;
use crate::engine::body::context::{Context, Details};
use crate::engine::body::steps::{Log, Recorder};
use crate::engine::lease::thread::RenewableLease;
use crate::engine::lease::{Lease, Sent};
use crate::engine::prepare::call::Call;
use crate::engine::process::Process;
use crate::engine::report::Event;
use crate::engine::retry::{backoff, unanswered, within};
use crate::error::StoreError;
use idem_core::RecordKey;
use idem_core::Store;
use idem_core::protocol::{Grant, Owner, Record, Renew, RenewAnswer};

/// A claim, shared by everything that acts on it.
pub(crate) struct Claimed<S> {
    pub(crate) call: Arc<Call<S>>,
    pub(crate) owner: Owner,
    pub(crate) grant: Grant,
    pub(crate) lease: Lease,
    pub(crate) log: Log,
}

impl<S: Store> Claimed<S> {
    /// The claim with this grant, which was first sent at `sent`.
    pub(crate) fn new(call: &Arc<Call<S>>, owner: Owner, grant: Grant, sent: Sent) -> Arc<Self> {
        let lease = Lease::new(call.lease, sent, call.renewal_pause);
        // A first attempt finds no steps of earlier runs. One that takes over from another run is at least the second.
        let log = Log::new(grant.attempt == 1, call.policy.recovers && grant.recovered);
        Arc::new(Self { call: call.clone(), owner, grant, lease, log })
    }

    /// Renews the lease once, and returns whether the store answered.
    pub(crate) async fn renew(self: Arc<Self>) -> bool {
        let sent = Sent::now(&self.call.process, self.call.lease_from_now());
        let request = Renew::new(self.owner, self.grant.fence, sent.lease);
        let patience =
            (self.call.lease / 3).max(Duration::from_millis(50)).min(self.call.policy.store_timeout);
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

    /// Renews the claim before its body or a step starts, because its answer was late or its lease may be over. The claim may
    /// be lost then.
    pub(crate) async fn renew_before_start(self: &Arc<Self>, until: Instant) -> Result<(), StoreError> {
        let mut pauses = backoff().build();
        while !self.clone().renew().await {
            let pause = pauses.next().unwrap_or(self.lease.length);
            if Instant::now() + pause >= until {
                return Err(StoreError::outcome_unknown(
                    "it did not answer when asked to renew the claim before the body or a step starts",
                ));
            }
            sleep(pause).await;
        }
        // After a deadline a lease may be over when its answer comes.
        if !self.lease.is_lost() && self.lease.held_until() <= Instant::now() {
            return Err(StoreError::outcome_unknown(
                "the lease was over before the body or a step could start",
            ));
        }
        Ok(())
    }

    /// Until when the steps are read and recorded: while the lease is held, and at least for the store timeout.
    pub(crate) fn retries_until(&self) -> Instant {
        self.lease.held_until().max(Instant::now() + self.call.policy.store_timeout)
    }

    /// The record as the store has it now.
    pub(crate) async fn look(&self) -> Result<Option<Record>, StoreError> {
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
