//! Broken protocols that record steps wrongly or lose them.

use crate::support::protocol::{Answer, RecordStep, RecordStepAnswer, Request, State, Transition};
use crate::support::rules::{Asked, Step};

/// The request, if it records a step.
fn step<'a>(asked: &Asked<'a>) -> Option<&'a RecordStep> {
    match asked.request {
        Request::RecordStep(step) => Some(step),
        _ => None,
    }
}

/// The position of the next step.
fn next(asked: &Asked<'_>) -> u32 {
    asked.record.map_or(0, |record| u32::try_from(record.steps.len()).unwrap_or(u32::MAX))
}

/// A slow first worker adds to its successor's steps.
pub fn step_without_owner(asked: &Asked<'_>) -> Step {
    asked.as_if_held()
}

/// Only the owner is compared, not the fence: a step of an earlier grant to the same owner succeeds.
pub fn step_without_fence(asked: &Asked<'_>) -> Step {
    asked.as_if_its_owner_held()
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

/// The step of an effect that happened is refused after the lease, and the effect happens again.
pub fn step_refused_after_the_lease(asked: &Asked<'_>) -> Step {
    asked.on(asked.record.filter(|record| asked.now < record.lease_until))
}

/// A worker whose answer was lost gets `Lost` for its recorded step.
pub fn step_not_repeatable(asked: &Asked<'_>) -> Step {
    match step(asked) {
        Some(step) if step.position != next(asked) => Transition::new(None, RecordStepAnswer::Lost.into()),
        _ => asked.right(),
    }
}

/// A step is appended whatever its position is.
pub fn step_at_any_position(asked: &Asked<'_>) -> Step {
    match step(asked) {
        Some(step) => asked.asking(step.clone().with_position(step.position.min(next(asked)))),
        None => asked.right(),
    }
}

/// A repeated step is recorded twice.
pub fn step_recorded_twice(asked: &Asked<'_>) -> Step {
    let right = asked.right();
    match (step(asked), asked.record, &right) {
        (
            Some(step),
            Some(record),
            Transition { write: None, answer: Answer::RecordStep(RecordStepAnswer::Recorded), .. },
        ) => {
            let mut new = record.clone();
            new.steps.push(step.step.clone());
            Transition::new(Some(new), RecordStepAnswer::Recorded.into())
        }
        _ => right,
    }
}

/// A step is acknowledged without being written.
pub fn step_acknowledged_unwritten(asked: &Asked<'_>) -> Step {
    Transition::new(None, asked.right().answer)
}

/// A takeover writes a new record without the steps.
pub fn takeover_forgets_steps(asked: &Asked<'_>) -> Step {
    asked.writing(|new| if new.recovered { new.with_steps(Vec::new()) } else { new })
}

/// After a failed body, the steps are gone.
pub fn release_forgets_steps(asked: &Asked<'_>) -> Step {
    asked.writing(|new| new.with_steps(Vec::new()))
}

/// The next record of a key gets the steps of the expired one.
pub fn expiry_keeps_steps(asked: &Asked<'_>) -> Step {
    let steps = asked.record.map_or_else(Vec::new, |record| record.steps.clone());
    asked.writing(|new| match new.state {
        State::InFlight => new.with_steps(steps),
        _ => new,
    })
}

/// A record with a result keeps its steps.
pub fn result_keeps_steps(asked: &Asked<'_>) -> Step {
    let steps = asked.record.map_or_else(Vec::new, |record| record.steps.clone());
    asked.writing(|new| new.with_steps(steps))
}
