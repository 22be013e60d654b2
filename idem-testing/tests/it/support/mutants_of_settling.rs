//! Broken protocols that start a body again in spite of a doubt, or let the wrong claim settle it.

use super::mutants::*;
use super::protocol::{
    self, Claim, ClaimAnswer, Fence, OnCrash, Owner, Record, Release, ReleaseAnswer, ReleaseCause, State,
    Timestamp, Transition,
};
use super::rules::Rules;

/// The crash policy is ignored.
impl Rules for InDoubtRerun {
    fn claim(
        record: Option<&Record>,
        floor: Fence,
        request: &Claim,
        now: Timestamp,
    ) -> Transition<ClaimAnswer> {
        let rerun = record.map(|record| record.clone().with_on_crash(OnCrash::Rerun));
        protocol::claim(rerun.as_ref(), floor, &request.clone().with_on_crash(OnCrash::Rerun), now)
    }
}

/// A claim under `in_doubt` expires like any other.
impl Rules for InDoubtExpires {
    fn claim(
        record: Option<&Record>,
        floor: Fence,
        request: &Claim,
        now: Timestamp,
    ) -> Transition<ClaimAnswer> {
        altered(protocol::claim(record, floor, request, now), |new| {
            let expires_at = new.expires_at.or(Some(new.lease_until));
            new.with_expires_at(expires_at)
        })
    }
}

/// A panic under `in_doubt` counts as a reported failure.
impl Rules for AbandonedIsReleased {
    fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> Transition<ReleaseAnswer> {
        protocol::release(record, &(*request).with_cause(ReleaseCause::Failed), now)
    }
}

/// A doubtful release counts as a reported failure.
impl Rules for DoubtfulIsFailed {
    fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> Transition<ReleaseAnswer> {
        match request.cause {
            ReleaseCause::Doubtful => {
                protocol::release(record, &(*request).with_cause(ReleaseCause::Failed), now)
            }
            _ => protocol::release(record, request, now),
        }
    }
}

/// A claim with other arguments settles a doubt.
impl Rules for SettlesOtherArguments {
    fn claim(
        record: Option<&Record>,
        floor: Fence,
        request: &Claim,
        now: Timestamp,
    ) -> Transition<ClaimAnswer> {
        match state(record) {
            Some(State::InDoubt) => {
                let blind = record.map(|record| record.clone().with_fingerprint(None));
                protocol::claim(blind.as_ref(), floor, request, now)
            }
            _ => protocol::claim(record, floor, request, now),
        }
    }
}

/// A late copy of a claim is granted the key that its own owner left in doubt.
impl Rules for SettlesItsOwnDoubt {
    fn claim(
        record: Option<&Record>,
        floor: Fence,
        request: &Claim,
        now: Timestamp,
    ) -> Transition<ClaimAnswer> {
        match state(record) {
            Some(State::InDoubt) => {
                let foreign = record.map(|record| record.clone().with_owner(Owner::NOBODY));
                protocol::claim(foreign.as_ref(), floor, request, now)
            }
            _ => protocol::claim(record, floor, request, now),
        }
    }
}

/// A caller that recovers does not wait for a worker with a running lease.
impl Rules for SettlesARunningLease {
    fn claim(
        record: Option<&Record>,
        floor: Fence,
        request: &Claim,
        now: Timestamp,
    ) -> Transition<ClaimAnswer> {
        let lapsed = record.filter(|record| request.recovers && record.state == State::InFlight);
        let lapsed = lapsed.map(|record| record.clone().with_lease_until(now));
        protocol::claim(lapsed.as_ref().or(record), floor, request, now)
    }
}

/// A doubt is settled, and its body started, without a limit of attempts.
impl Rules for SettlesBeyondTheAttempts {
    fn claim(
        record: Option<&Record>,
        floor: Fence,
        request: &Claim,
        now: Timestamp,
    ) -> Transition<ClaimAnswer> {
        match state(record) {
            Some(State::InDoubt) => {
                let asked = request.clone().with_max_attempts(None);
                protocol::claim(record, floor, &asked, now)
            }
            _ => protocol::claim(record, floor, request, now),
        }
    }
}

/// A grant that settles a doubt counts no attempt.
impl Rules for SettledWithoutAnAttempt {
    fn claim(
        record: Option<&Record>,
        floor: Fence,
        request: &Claim,
        now: Timestamp,
    ) -> Transition<ClaimAnswer> {
        let attempt = record.map_or(0, |record| record.attempt);
        match (state(record), protocol::claim(record, floor, request, now)) {
            (
                Some(State::InDoubt),
                Transition { write: Some(new), answer: ClaimAnswer::Granted(grant), .. },
            ) => Transition::new(
                Some(new.with_attempt(attempt)),
                ClaimAnswer::Granted(grant.with_attempt(attempt)),
            ),
            (_, step) => step,
        }
    }
}
