//! Broken protocols that do not compare who asks, or when: a worker completes, releases or renews what it no longer holds,
//! or is refused what it still holds.

use super::mutants::*;
use super::protocol::{
    self, Complete, CompleteAnswer, Fence, Owner, Record, Release, ReleaseAnswer, Renew, RenewAnswer,
    Resolution, ResolveAnswer, State, Timestamp, Transition,
};
use super::rules::Rules;

fn as_if_held(record: Option<&Record>, owner: Owner, fence: Fence) -> (Owner, Fence) {
    record.map_or((owner, fence), |record| (record.owner, record.fence))
}

fn complete_unchecked(
    record: Option<&Record>,
    asked: &Complete,
    now: Timestamp,
) -> Transition<CompleteAnswer> {
    let (owner, fence) = as_if_held(record, asked.owner, asked.fence);
    protocol::complete(record, &asked.clone().with_owner(owner).with_fence(fence), now)
}

fn release_unchecked(record: Option<&Record>, asked: &Release, now: Timestamp) -> Transition<ReleaseAnswer> {
    let (owner, fence) = as_if_held(record, asked.owner, asked.fence);
    protocol::release(record, &(*asked).with_owner(owner).with_fence(fence), now)
}

fn renew_unchecked(record: Option<&Record>, asked: &Renew, now: Timestamp) -> Transition<RenewAnswer> {
    let (owner, fence) = as_if_held(record, asked.owner, asked.fence);
    protocol::renew(record, &(*asked).with_owner(owner).with_fence(fence), now)
}

/// A slow first worker overwrites its successor's result.
impl Rules for CompleteWithoutOwner {
    fn complete(record: Option<&Record>, request: &Complete, now: Timestamp) -> Transition<CompleteAnswer> {
        complete_unchecked(record, request, now)
    }
}

/// A slow first worker releases its successor's claim.
impl Rules for ReleaseWithoutOwner {
    fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> Transition<ReleaseAnswer> {
        release_unchecked(record, request, now)
    }
}

/// A worker that lost its claim still believes that it has it.
impl Rules for RenewWithoutOwner {
    fn renew(record: Option<&Record>, request: &Renew, now: Timestamp) -> Transition<RenewAnswer> {
        renew_unchecked(record, request, now)
    }
}

/// The only guard is `WHERE state = 'in flight'`.
impl Rules for StateOnlyGuards {
    fn renew(record: Option<&Record>, request: &Renew, now: Timestamp) -> Transition<RenewAnswer> {
        renew_unchecked(record, request, now)
    }

    fn complete(record: Option<&Record>, request: &Complete, now: Timestamp) -> Transition<CompleteAnswer> {
        complete_unchecked(record.filter(|record| record.state == State::InFlight), request, now)
    }

    fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> Transition<ReleaseAnswer> {
        release_unchecked(record.filter(|record| record.state == State::InFlight), request, now)
    }
}

/// Only the owner is compared, not the fence: a request of an earlier grant to the same owner succeeds.
impl Rules for FenceNeverCompared {
    fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> Transition<ReleaseAnswer> {
        match record {
            Some(held) if held.owner == request.owner => release_unchecked(record, request, now),
            _ => protocol::release(record, request, now),
        }
    }
}

/// The worker in doubt takes the operator's decision for its own.
impl Rules for ResolveKeepsTheOwner {
    fn resolve(record: Option<&Record>, word: &Resolution, now: Timestamp) -> Transition<ResolveAnswer> {
        let owner = record.map_or(Owner::NOBODY, |record| record.owner);
        altered(protocol::resolve(record, word, now), |new| new.with_owner(owner))
    }
}

/// A later completion replaces a recorded result.
impl Rules for LastCompletionWins {
    fn complete(record: Option<&Record>, request: &Complete, now: Timestamp) -> Transition<CompleteAnswer> {
        match record {
            Some(done) if matches!(done.state, State::Completed | State::Failed) => {
                let again = done.clone().with_state(State::InFlight);
                complete_unchecked(Some(&again), request, now)
            }
            _ => protocol::complete(record, request, now),
        }
    }
}

/// A worker whose answer was lost gets `Lost` for its recorded result.
impl Rules for CompletionNotRepeatable {
    fn complete(record: Option<&Record>, request: &Complete, now: Timestamp) -> Transition<CompleteAnswer> {
        protocol::complete(record.filter(|record| record.state == State::InFlight), request, now)
    }
}

/// A result is refused although no other worker has made one.
impl Rules for CompleteRefusedAfterTheLease {
    fn complete(record: Option<&Record>, request: &Complete, now: Timestamp) -> Transition<CompleteAnswer> {
        let over = |record: &&Record| record.state == State::InFlight && record.lease_until <= now;
        protocol::complete(record.filter(|record| !over(record)), request, now)
    }
}
