//! Broken protocols that answer claims wrongly: running leases, fences, repeated claims, other arguments, attempts.

use super::mutants::*;
use super::protocol::{self, Claim, ClaimAnswer, Fence, Owner, Record, State, Timestamp, Transition};
use super::rules::Rules;

/// A claim reads the record in one step and writes it in another.
impl Rules for GetThenSet {
    const CLAIM_IS_ATOMIC: bool = false;
}

/// The store trusts a client's clock, which is ahead.
impl Rules for TakeoverOfARunningLease {
    fn claim(
        record: Option<&Record>,
        floor: Fence,
        request: &Claim,
        now: Timestamp,
    ) -> Transition<ClaimAnswer> {
        let lapsed = record.filter(|record| record.state == State::InFlight && record.lease_until > now);
        let lapsed = lapsed.map(|record| record.clone().with_lease_until(now));
        protocol::claim(lapsed.as_ref().or(record), floor, request, now)
    }
}

fn with_fence(step: Transition<ClaimAnswer>, fence: Fence) -> Transition<ClaimAnswer> {
    match step {
        Transition { write: Some(new), answer: ClaimAnswer::Granted(grant), .. } => {
            Transition::new(Some(new.with_fence(fence)), ClaimAnswer::Granted(grant.with_fence(fence)))
        }
        refused => refused,
    }
}

/// A key gets one fence and keeps it.
impl Rules for FenceNotRising {
    fn claim(
        record: Option<&Record>,
        floor: Fence,
        request: &Claim,
        now: Timestamp,
    ) -> Transition<ClaimAnswer> {
        let step = protocol::claim(record, floor, request, now);
        match record {
            Some(old) => with_fence(step, old.fence),
            None => step,
        }
    }
}

/// Two grants within one tick of the clock get the same fence.
impl Rules for FenceFromTheClockAlone {
    fn claim(
        record: Option<&Record>,
        floor: Fence,
        request: &Claim,
        now: Timestamp,
    ) -> Transition<ClaimAnswer> {
        with_fence(protocol::claim(record, floor, request, now), Fence::new(now.as_micros()))
    }
}

/// A store deletes a record and keeps no floor.
impl Rules for FenceForgottenWithTheRecord {
    fn claim(record: Option<&Record>, _: Fence, request: &Claim, now: Timestamp) -> Transition<ClaimAnswer> {
        protocol::claim(record, Fence::default(), request, now)
    }
}

/// A lost network answer turns into a stuck key.
impl Rules for NoClaimByTheSameOwner {
    fn claim(
        record: Option<&Record>,
        floor: Fence,
        request: &Claim,
        now: Timestamp,
    ) -> Transition<ClaimAnswer> {
        let foreign = record.map(|record| record.clone().with_owner(Owner::NOBODY));
        protocol::claim(foreign.as_ref(), floor, request, now)
    }
}

/// Other arguments run under the key until there is a result.
impl Rules for MismatchOnlyWhenCompleted {
    fn claim(
        record: Option<&Record>,
        floor: Fence,
        request: &Claim,
        now: Timestamp,
    ) -> Transition<ClaimAnswer> {
        match state(record) {
            Some(State::InFlight | State::Released | State::InDoubt) => {
                let blind = record.map(|record| record.clone().with_fingerprint(None));
                protocol::claim(blind.as_ref(), floor, request, now)
            }
            _ => protocol::claim(record, floor, request, now),
        }
    }
}

/// The first attempt is not counted.
impl Rules for OneAttemptTooMany {
    fn claim(
        record: Option<&Record>,
        floor: Fence,
        request: &Claim,
        now: Timestamp,
    ) -> Transition<ClaimAnswer> {
        let max_attempts = request.max_attempts.map(|most| most.saturating_add(1));
        protocol::claim(record, floor, &request.clone().with_max_attempts(max_attempts), now)
    }
}

/// A released key can be claimed at once, whatever its `retry_after`.
impl Rules for BackoffIgnored {
    fn claim(
        record: Option<&Record>,
        floor: Fence,
        request: &Claim,
        now: Timestamp,
    ) -> Transition<ClaimAnswer> {
        let due = record.map(|record| record.clone().with_retry_at(Timestamp::default()));
        protocol::claim(due.as_ref(), floor, request, now)
    }
}

/// A worker that dies blocks its key for ever.
impl Rules for LapsedLeaseStaysBusy {
    fn claim(
        record: Option<&Record>,
        floor: Fence,
        request: &Claim,
        now: Timestamp,
    ) -> Transition<ClaimAnswer> {
        let step = protocol::claim(record, floor, request, now);
        match (state(record), &step.write) {
            (Some(State::InFlight), Some(_)) => {
                Transition::new(None, ClaimAnswer::Busy { retry_after: request.lease })
            }
            _ => step,
        }
    }

    fn is_live(_: &Record, _: Timestamp) -> bool {
        true
    }
}
