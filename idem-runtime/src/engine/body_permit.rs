//! Leave for a body that was claimed before it might run: see [`HandlerPermit`].
//!
//! Owns what happens to a claim whose body waits: its lease is renewed, and it is certainly held when the body starts.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::time::Instant;

use super::attempt::Attempt;
use super::claim::{refused_by_store, renewed};
use super::context::{BodyPermit, HandlerPermit};
use super::renewal_in_task::RenewalInTask;
use crate::error::Error;
use idem_core::Store;

/// Takes leave for the body of this attempt, if it needs any. Returns whether the claim is still held.
pub(super) async fn before_body<S: Store>(
    attempt: &mut Attempt<S>,
    permit: &mut Option<BodyPermit>,
) -> Result<bool, Error> {
    let Some(handler) = attempt.call().handler_permit().filter(|_| permit.is_none()).cloned() else {
        return Ok(true);
    };
    *permit = handler.try_acquire();
    if permit.is_some() { Ok(true) } else { Box::pin(wait(attempt, permit, handler)).await }
}

async fn wait<S: Store>(
    attempt: &mut Attempt<S>,
    permit: &mut Option<BodyPermit>,
    handler: Arc<HandlerPermit>,
) -> Result<bool, Error> {
    {
        // Not the one that renews the lease beside the body: a call in flight has no room for it outside of `drive`.
        let mut renewal = RenewalInTask::new(attempt.claimed());
        let mut acquiring = pin!(handler.acquire());
        let acquired = poll_fn(|cx| match acquiring.as_mut().poll(cx) {
            Poll::Ready(acquired) => Poll::Ready(Some(acquired)),
            Poll::Pending => renewal.poll_lost(cx).map(|()| None),
        });
        *permit = acquired.await;
    }
    let lease = &attempt.claimed().lease;
    // The store may not have answered while the body waited, and another call may run by now.
    if permit.is_some() && lease.is_late() {
        let call = attempt.call();
        renewed(attempt.claimed(), Instant::now() + call.policy.store_timeout)
            .await
            .map_err(|error| refused_by_store(call, error))?;
    }
    let is_held = !attempt.claimed().lease.is_lost();
    attempt.body_starts_now();
    Ok(is_held)
}
