//! Broken answers to the requests of holders and operators, and broken purges.

use crate::support::protocol::{
    self, Answer, Fence, Owner, Record, RecordStepAnswer, ReleaseAnswer, ReleaseCause, RenewAnswer, Request,
    State, Timestamp, Transition,
};
use crate::support::rules::{Asked, Step};

/// What the protocol does, but the written record keeps a part of the previous record.
fn keeping(asked: &Asked<'_>, keep: impl FnOnce(Record, &Record) -> Record) -> Step {
    match asked.record {
        Some(before) => asked.writing(|new| keep(new, before)),
        None => asked.right(),
    }
}

/// What a deleted record leaves behind: an expired record without its fence and its attempts.
fn deleted(asked: &Asked<'_>) -> Option<Record> {
    let record = asked.record?.clone();
    Some(record.with_fence(Fence::default()).with_attempt(0).with_expires_at(Some(asked.now)))
}

/// The position of the next step.
fn next(asked: &Asked<'_>) -> u32 {
    asked.record.map_or(0, |record| u32::try_from(record.steps.len()).unwrap_or(u32::MAX))
}

/// A slow first worker overwrites the result, claim, lease or steps of its successor.
pub fn as_if_held(asked: &Asked<'_>) -> Step {
    asked.as_if_held()
}

/// Only the owner is compared, not the fence: a request of an earlier grant to the same owner succeeds.
pub fn as_if_its_owner_held(asked: &Asked<'_>) -> Step {
    let holder = asked.record.map(|record| record.owner);
    if asked.request.owner() == holder { asked.as_if_held() } else { asked.right() }
}

/// Renewals, completions and releases have only the guard `WHERE state = 'in flight'`.
pub fn state_only_guards(asked: &Asked<'_>) -> Step {
    match (asked.request, asked.state()) {
        (Request::Renew(_), _) => asked.as_if_held(),
        (Request::Complete(_) | Request::Release(_), Some(State::InFlight)) => asked.as_if_held(),
        (Request::Complete(_) | Request::Release(_), _) => asked.on(None),
        _ => asked.right(),
    }
}

/// After an operator's decision, the worker whose call was in doubt is still the owner. So the store answers
/// this worker as if it had made the decision.
pub fn keeps_the_owner(asked: &Asked<'_>) -> Step {
    keeping(asked, |new, before| new.with_owner(before.owner))
}

/// A worker takes over a key and leaves it in doubt without starting the body. The record keeps the worker's
/// fence, so the worker's later requests are still accepted.
pub fn keeps_the_fence(asked: &Asked<'_>) -> Step {
    keeping(asked, |new, before| new.with_fence(before.fence))
}

/// A later completion replaces a recorded result.
pub fn last_completion_wins(asked: &Asked<'_>) -> Step {
    match asked.record {
        Some(done) if matches!(done.state, State::Completed | State::Failed) => {
            let again = done.clone().with_state(State::InFlight);
            let held =
                Asked { record: Some(&again), floor: asked.floor, request: asked.request, now: asked.now };
            held.as_if_held()
        }
        _ => asked.right(),
    }
}

/// A release deletes the record, with its fence and its attempts.
pub fn delete_on_failure(asked: &Asked<'_>) -> Step {
    let step = asked.right();
    match step.answer {
        Answer::Release(answer) if answer != ReleaseAnswer::Lost => {
            Transition::new(deleted(asked), answer.into())
        }
        _ => step,
    }
}

/// As [`delete_on_failure`], without checking the owner.
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

/// Housekeeping also deletes completed records that have not expired.
pub fn is_no_result(record: &Record, now: Timestamp) -> bool {
    record.state != State::Completed && protocol::is_live(record, now)
}

/// A caller that goes away before its body starts, or whose `recover` fails, uses up an attempt.
pub fn keeps_the_attempt(asked: &Asked<'_>) -> Step {
    keeping(asked, |new, before| new.with_attempt(before.attempt))
}

/// The record of a long body expires while the body runs, in spite of renewals.
pub fn keeps_expiry(asked: &Asked<'_>) -> Step {
    keeping(asked, |new, before| new.with_expires_at(before.expires_at))
}

/// After the lease, a result is refused although no other worker has claimed the key.
pub fn refused_after_the_lease(asked: &Asked<'_>) -> Step {
    asked.on(asked.record.filter(|record| record.state != State::InFlight || asked.now < record.lease_until))
}

/// After the lease, a step is refused although its effect has happened, so the effect happens again.
pub fn step_refused_after_the_lease(asked: &Asked<'_>) -> Step {
    asked.on(asked.record.filter(|record| asked.now < record.lease_until))
}

/// The requests of a worker in doubt are refused. After a refused renewal, its body is dropped in the middle
/// of its effect.
pub fn without_doubts(asked: &Asked<'_>) -> Step {
    asked.on(asked.record.filter(|record| record.state != State::InDoubt))
}

/// A worker that completes again, because the answer was lost, gets `Lost` although its result is recorded.
pub fn only_in_flight(asked: &Asked<'_>) -> Step {
    asked.on(asked.record.filter(|record| record.state == State::InFlight))
}

/// Each release counts as a reported failure, also a doubtful release and a release after a panic under
/// `in_doubt`.
pub fn released_as_failed(asked: &Asked<'_>) -> Step {
    match asked.request {
        Request::Release(release) => asked.asking(release.with_cause(ReleaseCause::Failed)),
        _ => asked.right(),
    }
}

/// A claim takes over a key in doubt and is released unused. The record is then in flight, with a lease that
/// is over, and it expires. So the body starts again.
pub fn unused_doubt_expires(asked: &Asked<'_>) -> Step {
    asked.writing(|new| match new.state {
        State::InDoubt => {
            let expires_at = Some(asked.now.after(new.ttl));
            new.with_state(State::InFlight).with_owner(Owner::NOBODY).with_expires_at(expires_at)
        }
        _ => new,
    })
}

/// A renewal sets an expiry in every state, also in doubt.
pub fn renewed_doubt_expires(asked: &Asked<'_>) -> Step {
    asked.writing(|new| {
        let expires_at = Some(new.lease_until.after(new.ttl));
        new.with_expires_at(expires_at)
    })
}

/// A renewal ends the doubt, although other callers already got `InDoubt`.
pub fn renewal_ends_the_doubt(asked: &Asked<'_>) -> Step {
    let step = asked.seeing_in(State::InDoubt, |record| record.with_state(State::InFlight));
    Transition::new(step.write, asked.right().answer)
}

/// A worker in doubt that renews its lease gets the same answer as a worker that is not in doubt.
pub fn worker_in_doubt_is_not_told(asked: &Asked<'_>) -> Step {
    let step = asked.right();
    match step.answer {
        Answer::Renew(RenewAnswer::HeldInDoubt) => Transition::new(step.write, RenewAnswer::Held.into()),
        _ => step,
    }
}

/// A call whose body never started still blocks calls with other arguments.
pub fn keeps_the_fingerprint(asked: &Asked<'_>) -> Step {
    keeping(asked, |new, before| new.with_fingerprint(before.fingerprint))
}

/// A dropped caller counts as a reported failure, so the next run does not recover first.
pub fn abandoned_is_forgotten(asked: &Asked<'_>) -> Step {
    asked.writing(|new| match new.state {
        State::Released => new.with_recovered(false),
        _ => new,
    })
}

/// What `recover` found, or what an operator decided, is not kept.
pub fn is_asked_again(asked: &Asked<'_>) -> Step {
    keeping(asked, |new, before| new.with_recovered(before.recovered))
}

/// A step is accepted from a worker that has released its claim.
pub fn step_after_release(asked: &Asked<'_>) -> Step {
    match asked.state() {
        Some(State::Released) => {
            let step = asked.seeing(|record| record.with_state(State::InFlight));
            Transition::new(step.write.map(|new| new.with_state(State::Released)), step.answer)
        }
        _ => asked.right(),
    }
}

/// A worker that sends a step again, because the answer was lost, gets `Lost` although its step is recorded.
pub fn step_not_repeatable(asked: &Asked<'_>) -> Step {
    let step = asked.right();
    if step.write.is_some() { step } else { Transition::new(None, RecordStepAnswer::Lost.into()) }
}

/// A step is appended whatever its position is.
pub fn step_at_any_position(asked: &Asked<'_>) -> Step {
    let Request::RecordStep(step) = asked.request else { return asked.right() };
    asked.asking(step.clone().with_position(step.position.min(next(asked))))
}

/// A repeated step is recorded twice.
pub fn step_recorded_twice(asked: &Asked<'_>) -> Step {
    let right = asked.right();
    match (asked.request, &right.answer) {
        (Request::RecordStep(step), Answer::RecordStep(RecordStepAnswer::Recorded)) => {
            asked.asking(step.clone().with_position(next(asked)))
        }
        _ => right,
    }
}

/// A step is acknowledged without being written.
pub fn unwritten(asked: &Asked<'_>) -> Step {
    Transition::new(None, asked.right().answer)
}

/// A release writes a new record without the steps.
pub fn forgets_steps(asked: &Asked<'_>) -> Step {
    asked.writing(|new| new.with_steps(Vec::new()))
}

/// The next record of a key gets the steps of the expired one, or a record with a result keeps its steps.
pub fn keeps_steps(asked: &Asked<'_>) -> Step {
    keeping(asked, |new, before| new.with_steps(before.steps.clone()))
}
