//! Broken protocols that answer claims wrongly: running leases, fences, repeated claims, other arguments, attempts.

use crate::support::protocol::{
    self, Answer, ClaimAnswer, Fence, Owner, Record, State, Timestamp, Transition,
};
use crate::support::rules::{Asked, Step};

/// A claim reads the record in one step and writes it in another.
pub fn get_then_set(asked: &Asked<'_>) -> Step {
    asked.right()
}

/// The store trusts a client's clock, which is ahead.
pub fn takeover_of_a_running_lease(asked: &Asked<'_>) -> Step {
    asked.seeing_in(State::InFlight, |record| lapsed(record, asked.now))
}

/// The record with a lease that is over.
pub(super) fn lapsed(record: Record, now: Timestamp) -> Record {
    let lease_until = record.lease_until.min(now);
    record.with_lease_until(lease_until)
}

fn with_fence(step: Step, fence: Fence) -> Step {
    match step {
        Transition { write: Some(new), answer: Answer::Claim(ClaimAnswer::Granted(grant)), .. } => {
            let answer = ClaimAnswer::Granted(grant.with_fence(fence));
            Transition::new(Some(new.with_fence(fence)), answer.into())
        }
        refused => refused,
    }
}

/// A key gets one fence and keeps it.
pub fn fence_not_rising(asked: &Asked<'_>) -> Step {
    match asked.record {
        Some(old) => with_fence(asked.right(), old.fence),
        None => asked.right(),
    }
}

/// Two grants within one tick of the clock get the same fence.
pub fn fence_from_the_clock_alone(asked: &Asked<'_>) -> Step {
    with_fence(asked.right(), Fence::new(asked.now.as_micros()))
}

/// A store deletes a record and keeps no floor.
pub fn fence_forgotten_with_the_record(asked: &Asked<'_>) -> Step {
    protocol::apply(asked.record, Fence::default(), asked.request, asked.now)
}

/// A lost network answer turns into a stuck key.
pub fn no_claim_by_the_same_owner(asked: &Asked<'_>) -> Step {
    asked.seeing(|record| record.with_owner(Owner::NOBODY))
}

/// Other arguments run under the key until there is a result.
pub fn mismatch_only_when_completed(asked: &Asked<'_>) -> Step {
    asked.seeing(|record| match record.state {
        State::Completed | State::Failed => record,
        _ => record.with_fingerprint(None),
    })
}

/// The first attempt is not counted.
pub fn one_attempt_too_many(asked: &Asked<'_>) -> Step {
    let Some(claim) = asked.claim() else { return asked.right() };
    let max_attempts = claim.max_attempts.map(|most| most.saturating_add(1));
    asked.asking(claim.clone().with_max_attempts(max_attempts))
}

/// A released key can be claimed at once, whatever its `retry_after`.
pub fn backoff_ignored(asked: &Asked<'_>) -> Step {
    asked.seeing(|record| record.with_retry_at(Timestamp::default()))
}

/// A worker that dies blocks its key for ever.
pub fn lapsed_lease_stays_busy(asked: &Asked<'_>) -> Step {
    let step = asked.right();
    match (asked.claim(), asked.state(), &step.write) {
        (Some(claim), Some(State::InFlight), Some(_)) => {
            Transition::new(None, ClaimAnswer::Busy { retry_after: claim.lease }.into())
        }
        _ => step,
    }
}

pub fn is_always_live(_: &Record, _: Timestamp) -> bool {
    true
}
