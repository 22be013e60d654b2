//! Broken protocols that record steps wrongly or lose them.

use super::mutants::*;
use super::protocol::{
    self, Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Record, RecordStep, RecordStepAnswer, Release,
    ReleaseAnswer, State, Timestamp, Transition,
};
use super::rules::Rules;

fn step_as_if_held(record: &Record, asked: &RecordStep, now: Timestamp) -> Transition<RecordStepAnswer> {
    let (owner, fence) = (record.owner, record.fence);
    protocol::record_step(Some(record), &asked.clone().with_owner(owner).with_fence(fence), now)
}

type StepOf = Transition<RecordStepAnswer>;

/// A slow first worker adds to its successor's steps.
impl Rules for StepWithoutOwner {
    fn record_step(record: Option<&Record>, request: &RecordStep, now: Timestamp) -> StepOf {
        match record {
            Some(record) => step_as_if_held(record, request, now),
            None => protocol::record_step(record, request, now),
        }
    }
}

/// Only the owner is compared, not the fence: a step of an earlier grant to the same owner succeeds.
impl Rules for StepWithoutFence {
    fn record_step(record: Option<&Record>, request: &RecordStep, now: Timestamp) -> StepOf {
        match record {
            Some(held) if held.owner == request.owner => step_as_if_held(held, request, now),
            _ => protocol::record_step(record, request, now),
        }
    }
}

/// A step is accepted from a worker that has released its claim.
impl Rules for StepAfterRelease {
    fn record_step(record: Option<&Record>, request: &RecordStep, now: Timestamp) -> StepOf {
        match record {
            Some(released) if released.state == State::Released => {
                let held = released.clone().with_state(State::InFlight);
                let step = protocol::record_step(Some(&held), request, now);
                altered(step, |new| new.with_state(State::Released))
            }
            _ => protocol::record_step(record, request, now),
        }
    }
}

/// The step of an effect that happened is refused after the lease, and the effect happens again.
impl Rules for StepRefusedAfterTheLease {
    fn record_step(record: Option<&Record>, request: &RecordStep, now: Timestamp) -> StepOf {
        protocol::record_step(record.filter(|record| now < record.lease_until), request, now)
    }
}

/// A worker whose answer was lost gets `Lost` for its recorded step.
impl Rules for StepNotRepeatable {
    fn record_step(record: Option<&Record>, request: &RecordStep, now: Timestamp) -> StepOf {
        let next = record.map_or(0, |record| record.steps.len());
        if u32::try_from(next) == Ok(request.position) {
            return protocol::record_step(record, request, now);
        }
        Transition::new(None, RecordStepAnswer::Lost)
    }
}

/// A step is appended whatever its position is.
impl Rules for StepAtAnyPosition {
    fn record_step(record: Option<&Record>, request: &RecordStep, now: Timestamp) -> StepOf {
        let next = record.map_or(0, |record| u32::try_from(record.steps.len()).unwrap_or(u32::MAX));
        let position = request.position.min(next);
        protocol::record_step(record, &request.clone().with_position(position), now)
    }
}

/// A repeated step is recorded twice.
impl Rules for StepRecordedTwice {
    fn record_step(record: Option<&Record>, request: &RecordStep, now: Timestamp) -> StepOf {
        let step = protocol::record_step(record, request, now);
        match (record, &step) {
            (Some(record), Transition { write: None, answer: RecordStepAnswer::Recorded, .. }) => {
                let mut new = record.clone();
                new.steps.push(request.step.clone());
                Transition::new(Some(new), RecordStepAnswer::Recorded)
            }
            _ => step,
        }
    }
}

/// A step is acknowledged without being written.
impl Rules for StepAcknowledgedUnwritten {
    fn record_step(record: Option<&Record>, request: &RecordStep, now: Timestamp) -> StepOf {
        Transition::new(None, protocol::record_step(record, request, now).answer)
    }
}

/// A takeover writes a new record without the steps.
impl Rules for TakeoverForgetsSteps {
    fn claim(
        record: Option<&Record>,
        floor: Fence,
        request: &Claim,
        now: Timestamp,
    ) -> Transition<ClaimAnswer> {
        altered(protocol::claim(record, floor, request, now), |new| {
            if new.recovered { new.with_steps(Vec::new()) } else { new }
        })
    }
}

/// After a failed body, the steps are gone.
impl Rules for ReleaseForgetsSteps {
    fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> Transition<ReleaseAnswer> {
        altered(protocol::release(record, request, now), |new| new.with_steps(Vec::new()))
    }
}

/// The next record of a key gets the steps of the expired one.
impl Rules for ExpiryKeepsSteps {
    fn claim(
        record: Option<&Record>,
        floor: Fence,
        request: &Claim,
        now: Timestamp,
    ) -> Transition<ClaimAnswer> {
        let steps = record.map_or_else(Vec::new, |record| record.steps.clone());
        altered(protocol::claim(record, floor, request, now), |new| match new.state {
            State::InFlight => new.with_steps(steps),
            _ => new,
        })
    }
}

/// A record with a result keeps its steps.
impl Rules for ResultKeepsSteps {
    fn complete(record: Option<&Record>, request: &Complete, now: Timestamp) -> Transition<CompleteAnswer> {
        let steps = record.map_or_else(Vec::new, |record| record.steps.clone());
        altered(protocol::complete(record, request, now), |new| new.with_steps(steps))
    }
}
