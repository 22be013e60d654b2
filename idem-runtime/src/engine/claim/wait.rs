//! Waiting for the call in flight: what one waiter does with what [`waiters`](super::waiters) reads for all of them.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::time::{Instant, timeout_at};

use super::waiters::{Refusal, Waiter, Waiters};
use super::{Claiming, claim};
use crate::engine::prepare::call::Call;
use crate::engine::report::Event;
use crate::error::Error;
use idem_core::Store;
use idem_core::protocol::{ClaimAnswer, Owner, recorded_answer};

/// The refusal in this answer; `None` if waiting does not help.
pub(super) fn worth_waiting(answer: &ClaimAnswer) -> Option<Refusal> {
    match answer {
        ClaimAnswer::Busy { retry_after } => Some(Refusal::now(*retry_after, true)),
        ClaimAnswer::RetryAt { retry_after } => Some(Refusal::now(*retry_after, false)),
        _ => None,
    }
}

/// Waits until this call gets the key or a result, for as long as the policy allows.
pub(super) async fn wait<S: Store>(call: &Arc<Call<S>>, refusal: Refusal) -> Result<Claiming<S>, Error> {
    let begin = Instant::now();
    let deadline = begin + call.policy.wait;
    let patience = call.policy.store_timeout;
    let waiter = Waiters::join(&call.store, &call.key, &call.runtime, patience, refusal);
    let waited = timeout_at(deadline, until_claimed(call, &waiter, deadline)).await;
    call.report(Event::Waited(begin.elapsed()), 0);
    match waited {
        Ok(claiming) => claiming,
        // If the poll has not read the key just now, this call asks once more, so that its error is up to date.
        Err(_) => match waiter.poll().refusal(patience) {
            Some(answer) => Ok(Claiming::NotGranted(answer)),
            None => claim(call).await.map_err(|error| call.store_failed(error)),
        },
    }
}

/// Returns when there is a result, or the answer to a claim that is not worth waiting again.
async fn until_claimed<S: Store>(
    call: &Arc<Call<S>>,
    waiter: &Waiter,
    deadline: Instant,
) -> Result<Claiming<S>, Error> {
    let poll = waiter.poll();
    let mut result = poll.result.subscribe();
    loop {
        {
            let recorded = pin!(result.wait_for(Option::is_some));
            // The sender is not gone, because the poll outlives its waiters.
            if let Either::Left((Ok(record), _)) = select(recorded, pin!(poll.claimable.notified())).await
                && let Some(record) = &*record
                && let Some(answer) = recorded_answer(record, &call.claim(Owner::random(), Duration::ZERO))
            {
                return Ok(Claiming::NotGranted(answer));
            }
        }
        match claim(call).await {
            Ok(Claiming::NotGranted(answer)) if let Some(refusal) = worth_waiting(&answer) => {
                poll.refused(refusal);
            }
            Ok(claiming) => {
                // The next waiter learns at once what has changed.
                waiter.poll().changed.notify_one();
                return Ok(claiming);
            }
            // The key is known to be in flight elsewhere, so the body must not run unprotected; waiting may help.
            Err(error) if error.is_transient() && Instant::now() < deadline => {}
            Err(error) => return Err(call.store_failed(error)),
        }
    }
}
