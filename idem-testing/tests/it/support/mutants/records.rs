//! Broken protocols that lose what a record holds: its result, its expiry, or the record itself.

use crate::support::protocol::{
    self, Answer, Fence, Record, ReleaseAnswer, State, StoredResult, Timestamp, Transition,
};
use crate::support::rules::{Asked, Step};

/// What a deleted record leaves behind: an expired record without its fence and its attempts.
fn deleted(asked: &Asked<'_>) -> Option<Record> {
    let record = asked.record?.clone();
    Some(record.with_fence(Fence::default()).with_attempt(0).with_expires_at(Some(asked.now)))
}

/// A duplicate gets no result, only that it is a duplicate.
pub fn replay_is_empty(asked: &Asked<'_>) -> Step {
    asked.seeing(|record| {
        let result = record.result.as_ref().map(|_| StoredResult::Value(Default::default()));
        record.with_result(result)
    })
}

/// The lease is only the time after which the record expires. Then no record is left, no number of attempts and no fence.
pub fn lease_as_expiry(asked: &Asked<'_>) -> Step {
    let record = asked.record.filter(|record| outlives_its_lease(record, asked.now));
    protocol::apply(record, Fence::default(), asked.request, asked.now)
}

pub fn outlives_its_lease(record: &Record, now: Timestamp) -> bool {
    let lapsed = record.state == State::InFlight && record.lease_until <= now;
    !lapsed && protocol::is_live(record, now)
}

/// A body that fails deletes the record.
pub fn delete_on_failure(asked: &Asked<'_>) -> Step {
    let step = asked.right();
    match step.answer {
        Answer::Release(answer) if answer != ReleaseAnswer::Lost => {
            Transition::new(deleted(asked), answer.into())
        }
        _ => step,
    }
}

/// The same, without checking the owner.
pub fn delete_on_failure_by_anybody(asked: &Asked<'_>) -> Step {
    Transition::new(deleted(asked), ReleaseAnswer::Released.into())
}

/// A body that takes longer than the time to live leaves no result.
pub fn expiry_from_creation(asked: &Asked<'_>) -> Step {
    asked.writing(|new| {
        let expires_at = Some(new.created_at.after(new.ttl));
        new.with_expires_at(expires_at)
    })
}

/// The record of a long body expires while the body runs, in spite of renewals.
pub fn renewal_keeps_expiry(asked: &Asked<'_>) -> Step {
    let expires_at = asked.record.and_then(|record| record.expires_at);
    asked.writing(|new| new.with_expires_at(expires_at))
}

/// Housekeeping deletes completed records instead of expired ones.
pub fn purge_of_live_results(asked: &Asked<'_>) -> Step {
    asked.right()
}

pub fn is_no_result(record: &Record, now: Timestamp) -> bool {
    record.state != State::Completed && protocol::is_live(record, now)
}
