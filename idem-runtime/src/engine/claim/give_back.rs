//! Giving back a claim whose answer nobody awaits any more, or never came.
//!
//! Owns the rule that such a claim is released although its answer is not known: no body began, and after the lease the next
//! call would take the claim for a crash.

use std::sync::Arc;

use tokio::time::timeout;

use super::waiters::Waiters;
use super::{Answering, NoAnswer};
use crate::engine::prepare::call::Call;
use crate::engine::record::background::Work;
use crate::engine::record::release::Patience;
use crate::engine::report::Event;
use crate::engine::retry::unanswered;
use crate::error::StoreError;
use idem_core::Store;
use idem_core::protocol::{Fence, Owner, Record, Release, ReleaseCause, State};

/// A claim whose answer is awaited. If the caller goes away first, a background task awaits the answer and releases the
/// grant.
pub(super) struct UnansweredClaim<'c, S: Store> {
    pub(super) call: &'c Arc<Call<S>>,
    pub(super) owner: Owner,
    pub(super) answering: Option<Answering<S>>,
}

impl<S: Store> UnansweredClaim<'_, S> {
    /// Finds out in the background what was granted, and releases it. `answering` is `None` if the last answer left open
    /// whether the claim was granted.
    pub(super) fn give_back(&self, answering: Option<Answering<S>>) {
        let work = give_back(self.call.clone(), self.owner, answering);
        self.call.finish_behind(Work::Release, work);
    }
}

impl<S: Store> Drop for UnansweredClaim<'_, S> {
    fn drop(&mut self) {
        if let Some(answering) = self.answering.take() {
            self.give_back(Some(answering));
        }
    }
}

/// Finds out what was granted to a call that went away, and releases it, also after an outage of the store.
async fn give_back<S: Store>(call: Arc<Call<S>>, owner: Owner, answering: Option<Answering<S>>) {
    if let Some(answering) = answering {
        let answer = timeout(call.policy.store_timeout, answering).await;
        // An unused attempt releases its claim when it is dropped.
        if let Ok(Ok(_) | Err(NoAnswer { may_be_granted: false, .. })) = answer {
            return;
        }
    }
    let mut patience = Patience::new(&call);
    let mut fence = None;
    // Reads the record and does not claim again, because a claim that was never granted must not be granted here.
    while let Err(error) = release_grant(&call, owner, &mut fence).await {
        if !patience.wait_after(&error).await {
            return call.report(Event::ReleaseFailed(&error), 0);
        }
    }
}

/// Releases the key if this owner holds it under `fence`, the fence that was read first. A later read may show a higher one: then
/// an earlier release was applied and its answer lost, and what the record says now is not about this claim.
async fn release_grant<S: Store>(
    call: &Call<S>,
    owner: Owner,
    fence: &mut Option<Fence>,
) -> Result<(), StoreError> {
    let patience = call.policy.store_timeout;
    let record = timeout(patience, call.store.get(&call.key))
        .await
        .unwrap_or_else(|_| Err(unanswered("the record", patience)))?;
    let held = |record: &Record| matches!(record.state, State::InFlight | State::InDoubt);
    let Some(record) = record.filter(|record| held(record) && record.owner == owner) else {
        return Ok(());
    };
    let request = Release::new(owner, *fence.get_or_insert(record.fence), ReleaseCause::Unused);
    timeout(patience, call.store.release(&call.key, &request))
        .await
        .unwrap_or_else(|_| Err(unanswered("the release", patience)))?;
    Waiters::wake_in(&call.store, &call.key);
    Ok(())
}
