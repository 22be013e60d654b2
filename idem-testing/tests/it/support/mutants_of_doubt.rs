//! Broken protocols around runs with an unknown outcome: doubts, abandoned runs, claims that are released unused.

use super::mutants::*;
use super::protocol::{
    self, Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, OnCrash, Owner, Record, RecordStep,
    RecordStepAnswer, Release, ReleaseAnswer, ReleaseCause, Renew, RenewAnswer, Resolution, ResolveAnswer,
    State, StoredResult, Timestamp, Tombstone, Transition,
};
use super::rules::Rules;

type ClaimOf = Transition<ClaimAnswer>;
type ReleaseOf = Transition<ReleaseAnswer>;

/// The record, unless it is in doubt.
fn not_in_doubt(record: Option<&Record>) -> Option<&Record> {
    record.filter(|record| record.state != State::InDoubt)
}

/// A settled doubt that is released unused becomes a lapsed lease that expires, and then the body starts again.
impl Rules for UnusedDoubtExpires {
    fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> ReleaseOf {
        altered(protocol::release(record, request, now), |new| match request.cause {
            ReleaseCause::Unused if new.state == State::InDoubt => {
                let expires_at = Some(now.after(new.ttl));
                new.with_state(State::InFlight).with_owner(Owner::NOBODY).with_expires_at(expires_at)
            }
            _ => new,
        })
    }
}

/// Requests of a worker that released a settled doubt still count.
impl Rules for UnusedDoubtStaysItsHolders {
    fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> ReleaseOf {
        altered(protocol::release(record, request, now), |new| new.with_fence(request.fence))
    }
}

/// A caller that goes away before its body starts uses up an attempt.
impl Rules for UnusedCountsAnAttempt {
    fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> ReleaseOf {
        let attempt = record.map_or(0, |record| record.attempt);
        altered(protocol::release(record, request, now), |new| match request.cause {
            ReleaseCause::Unused => new.with_attempt(attempt),
            _ => new,
        })
    }
}

/// Arguments that never ran block a call with other arguments.
impl Rules for UnusedPinsItsFingerprint {
    fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> ReleaseOf {
        let fingerprint = record.and_then(|record| record.fingerprint);
        altered(protocol::release(record, request, now), |new| new.with_fingerprint(fingerprint))
    }
}

/// A late copy of a claim takes the key for a caller that has gone.
impl Rules for LateClaimRevives {
    fn claim(record: Option<&Record>, floor: Fence, request: &Claim, now: Timestamp) -> ClaimOf {
        let released = record.filter(|record| record.state == State::Released);
        let foreign = released.map(|record| record.clone().with_owner(Owner::NOBODY));
        protocol::claim(foreign.as_ref().or(record), floor, request, now)
    }
}

/// A dropped caller counts as a reported failure, so the next run does not recover first.
impl Rules for AbandonedIsForgotten {
    fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> ReleaseOf {
        altered(protocol::release(record, request, now), |new| match new.state {
            State::Released => new.with_recovered(false),
            _ => new,
        })
    }
}

/// A body in doubt is dropped in the middle of its effect, although no other worker may run it.
impl Rules for WorkerInDoubtIsCancelled {
    fn renew(record: Option<&Record>, request: &Renew, now: Timestamp) -> Transition<RenewAnswer> {
        protocol::renew(not_in_doubt(record), request, now)
    }
}

/// A worker in doubt gets the same answer as any other.
impl Rules for WorkerInDoubtIsNotTold {
    fn renew(record: Option<&Record>, request: &Renew, now: Timestamp) -> Transition<RenewAnswer> {
        let step = protocol::renew(record, request, now);
        match step.answer {
            RenewAnswer::HeldInDoubt => Transition::new(step.write, RenewAnswer::Held),
            _ => step,
        }
    }
}

/// A renewal ends the doubt that other callers were told about.
impl Rules for RenewalEndsTheDoubt {
    fn renew(record: Option<&Record>, request: &Renew, now: Timestamp) -> Transition<RenewAnswer> {
        altered(protocol::renew(record, request, now), |new| {
            let expires_at = match new.on_crash {
                OnCrash::InDoubt => None,
                _ => Some(new.lease_until.after(new.ttl)),
            };
            new.with_state(State::InFlight).with_expires_at(expires_at)
        })
    }
}

/// A renewal sets an expiry in every state, also in doubt.
impl Rules for RenewedDoubtExpires {
    fn renew(record: Option<&Record>, request: &Renew, now: Timestamp) -> Transition<RenewAnswer> {
        altered(protocol::renew(record, request, now), |new| {
            let expires_at = Some(new.lease_until.after(new.ttl));
            new.with_expires_at(expires_at)
        })
    }
}

/// The result of a worker in doubt is refused, so an operator must find out what that worker knows.
impl Rules for ResultOfADoubtRefused {
    fn complete(record: Option<&Record>, request: &Complete, now: Timestamp) -> Transition<CompleteAnswer> {
        protocol::complete(not_in_doubt(record), request, now)
    }
}

/// The same for a step.
impl Rules for StepOfADoubtRefused {
    fn record_step(
        record: Option<&Record>,
        request: &RecordStep,
        now: Timestamp,
    ) -> Transition<RecordStepAnswer> {
        protocol::record_step(not_in_doubt(record), request, now)
    }
}

/// A body in doubt that returns an error leaves the doubt.
impl Rules for FailureOfADoubtRefused {
    fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> ReleaseOf {
        match request.cause {
            ReleaseCause::Failed => protocol::release(not_in_doubt(record), request, now),
            _ => protocol::release(record, request, now),
        }
    }
}

/// A doubt is settled while its worker is alive, so `recover` asks about an effect that is happening.
impl Rules for SettlesWhileItsWorkerIsAlive {
    fn claim(record: Option<&Record>, floor: Fence, request: &Claim, now: Timestamp) -> ClaimOf {
        let doubt = record.filter(|record| record.state == State::InDoubt);
        let lapsed = doubt.map(|record| record.clone().with_lease_until(now));
        protocol::claim(lapsed.as_ref().or(record), floor, request, now)
    }
}

/// If `recover` fails, an attempt counts although no body was started.
impl Rules for ProbeCountsAnAttempt {
    fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> ReleaseOf {
        let attempt = record.map_or(0, |record| record.attempt);
        altered(protocol::release(record, request, now), |new| match request.cause {
            ReleaseCause::Doubtful => new.with_attempt(attempt),
            _ => new,
        })
    }
}

/// The outcome that `recover` found is not kept.
impl Rules for NothingHappenedIsAskedAgain {
    fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> ReleaseOf {
        let recovered = record.is_some_and(|record| record.recovered);
        altered(protocol::release(record, request, now), |new| match request.cause {
            ReleaseCause::NothingHappened => new.with_recovered(recovered),
            _ => new,
        })
    }
}

/// The same for an operator's decision.
impl Rules for OperatorIsAskedAgain {
    fn resolve(record: Option<&Record>, word: &Resolution, now: Timestamp) -> Transition<ResolveAnswer> {
        let recovered = record.is_some_and(|record| record.recovered);
        altered(protocol::resolve(record, word, now), |new| new.with_recovered(recovered))
    }
}

/// After the last attempt, no caller may recover, although the attempt may have had its effect.
impl Rules for ExhaustedThoughItRecovers {
    fn claim(record: Option<&Record>, floor: Fence, request: &Claim, now: Timestamp) -> ClaimOf {
        let step = protocol::claim(record, floor, request, now);
        match step.answer {
            ClaimAnswer::Granted(grant) if grant.recover_only && step.write.is_some() => {
                protocol::claim(record, floor, &request.clone().with_recovers(false), now)
            }
            _ => step,
        }
    }
}

/// A claim to recover after the last attempt also starts the body.
impl Rules for RunsPastTheLimit {
    fn claim(record: Option<&Record>, floor: Fence, request: &Claim, now: Timestamp) -> ClaimOf {
        let step = protocol::claim(record, floor, request, now);
        match step.answer {
            ClaimAnswer::Granted(grant) => {
                let answer = ClaimAnswer::Granted(grant.with_recover_only(false));
                Transition::new(step.write, answer)
            }
            _ => step,
        }
    }
}

/// `Exhausted` deletes the steps, which show what the last run did.
impl Rules for ExhaustionForgetsSteps {
    fn claim(record: Option<&Record>, floor: Fence, request: &Claim, now: Timestamp) -> ClaimOf {
        altered(protocol::claim(record, floor, request, now), |new| match new.result {
            Some(StoredResult::Tombstone(Tombstone::Exhausted)) => new.with_steps(Vec::new()),
            _ => new,
        })
    }
}
