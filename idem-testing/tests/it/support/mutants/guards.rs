//! Broken protocols that do not compare who asks, or when: a worker completes, releases or renews what it no longer holds,
//! or is refused what it still holds.

use crate::support::protocol::{Owner, Request, State};
use crate::support::rules::{Asked, Step};

/// A slow first worker overwrites its successor's result.
pub fn complete_without_owner(asked: &Asked<'_>) -> Step {
    asked.as_if_held()
}

/// A slow first worker releases its successor's claim.
pub fn release_without_owner(asked: &Asked<'_>) -> Step {
    asked.as_if_held()
}

/// A worker that lost its claim still believes that it has it.
pub fn renew_without_owner(asked: &Asked<'_>) -> Step {
    asked.as_if_held()
}

/// The only guard is `WHERE state = 'in flight'`.
pub fn state_only_guards(asked: &Asked<'_>) -> Step {
    match (asked.request, asked.state()) {
        (Request::Renew(_), _) => asked.as_if_held(),
        (Request::Complete(_) | Request::Release(_), Some(State::InFlight)) => asked.as_if_held(),
        (Request::Complete(_) | Request::Release(_), _) => asked.on(None),
        _ => asked.right(),
    }
}

/// Only the owner is compared, not the fence: a request of an earlier grant to the same owner succeeds.
pub fn fence_never_compared(asked: &Asked<'_>) -> Step {
    asked.as_if_its_owner_held()
}

/// The worker in doubt takes the operator's decision for its own.
pub fn resolve_keeps_the_owner(asked: &Asked<'_>) -> Step {
    let owner = asked.record.map_or(Owner::NOBODY, |record| record.owner);
    asked.writing(|new| new.with_owner(owner))
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

/// A worker whose answer was lost gets `Lost` for its recorded result.
pub fn completion_not_repeatable(asked: &Asked<'_>) -> Step {
    asked.on(asked.record.filter(|record| record.state == State::InFlight))
}

/// A result is refused although no other worker has made one.
pub fn complete_refused_after_the_lease(asked: &Asked<'_>) -> Step {
    asked.on(asked.record.filter(|record| record.state != State::InFlight || asked.now < record.lease_until))
}
