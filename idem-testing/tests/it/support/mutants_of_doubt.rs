//! Broken protocols that forget what a run did of which nobody knows: doubts, abandoned runs, claims given back.

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

/// A settled doubt that nobody used is a lapsed lease with an end: after it, the body starts again.
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

/// Whoever gave a settled doubt back still speaks for it.
impl Rules for UnusedDoubtStaysItsHolders {
    fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> ReleaseOf {
        altered(protocol::release(record, request, now), |new| new.with_fence(request.fence))
    }
}

/// A caller that goes away first uses an attempt up.
impl Rules for UnusedCountsAnAttempt {
    fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> ReleaseOf {
        let attempt = record.map_or(0, |record| record.attempt);
        altered(protocol::release(record, request, now), |new| match request.cause {
            ReleaseCause::Unused => new.with_attempt(attempt),
            _ => new,
        })
    }
}

/// Arguments that never ran are in the way of those that are to.
impl Rules for UnusedPinsItsFingerprint {
    fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> ReleaseOf {
        let fingerprint = record.and_then(|record| record.fingerprint);
        altered(protocol::release(record, request, now), |new| new.with_fingerprint(fingerprint))
    }
}

/// A copy of a claim that was stuck in the network takes the key for a caller that is long gone.
impl Rules for LateClaimRevives {
    fn claim(record: Option<&Record>, floor: Fence, request: &Claim, now: Timestamp) -> ClaimOf {
        let released = record.filter(|record| record.state == State::Released);
        let foreign = released.map(|record| record.clone().with_owner(Owner::NOBODY));
        protocol::claim(foreign.as_ref().or(record), floor, request, now)
    }
}

/// A dropped caller is taken for a failure that is known, so the next run does not look first.
impl Rules for AbandonedIsForgotten {
    fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> ReleaseOf {
        altered(protocol::release(record, request, now), |new| match new.state {
            State::Released => new.with_recovered(false),
            _ => new,
        })
    }
}

/// A body is dropped in the middle of its effect though nobody else may run it.
impl Rules for WorkerInDoubtIsCancelled {
    fn renew(record: Option<&Record>, request: &Renew, now: Timestamp) -> Transition<RenewAnswer> {
        protocol::renew(not_in_doubt(record), request, now)
    }
}

/// A worker in doubt is answered as any other.
impl Rules for WorkerInDoubtIsNotTold {
    fn renew(record: Option<&Record>, request: &Renew, now: Timestamp) -> Transition<RenewAnswer> {
        let step = protocol::renew(record, request, now);
        match step.answer {
            RenewAnswer::HeldInDoubt => step.with_answer(RenewAnswer::Held),
            _ => step,
        }
    }
}

/// What others were answered is no longer so.
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

/// A lease that is renewed has an end in every state.
impl Rules for RenewedDoubtExpires {
    fn renew(record: Option<&Record>, request: &Renew, now: Timestamp) -> Transition<RenewAnswer> {
        altered(protocol::renew(record, request, now), |new| {
            let expires_at = Some(new.lease_until.after(new.ttl));
            new.with_expires_at(expires_at)
        })
    }
}

/// A person has to find out what a process knew.
impl Rules for ResultOfADoubtRefused {
    fn complete(record: Option<&Record>, request: &Complete, now: Timestamp) -> Transition<CompleteAnswer> {
        protocol::complete(not_in_doubt(record), request, now)
    }
}

/// The same of a step.
impl Rules for StepOfADoubtRefused {
    fn record_step(
        record: Option<&Record>,
        request: &RecordStep,
        now: Timestamp,
    ) -> Transition<RecordStepAnswer> {
        protocol::record_step(not_in_doubt(record), request, now)
    }
}

/// A body that failed cleanly leaves a doubt.
impl Rules for FailureOfADoubtRefused {
    fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> ReleaseOf {
        match request.cause {
            ReleaseCause::Failed => protocol::release(not_in_doubt(record), request, now),
            _ => protocol::release(record, request, now),
        }
    }
}

/// Whether the effect happened is asked while it happens.
impl Rules for SettlesWhileItsWorkerIsAlive {
    fn claim(record: Option<&Record>, floor: Fence, request: &Claim, now: Timestamp) -> ClaimOf {
        let doubt = record.filter(|record| record.state == State::InDoubt);
        let lapsed = doubt.map(|record| record.clone().with_lease_until(now));
        protocol::claim(lapsed.as_ref().or(record), floor, request, now)
    }
}

/// A service that cannot be asked uses the attempts up, and no body was started.
impl Rules for ProbeCountsAnAttempt {
    fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> ReleaseOf {
        let attempt = record.map_or(0, |record| record.attempt);
        altered(protocol::release(record, request, now), |new| match request.cause {
            ReleaseCause::Doubtful => new.with_attempt(attempt),
            _ => new,
        })
    }
}

/// What was found out is not remembered.
impl Rules for NothingHappenedIsAskedAgain {
    fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> ReleaseOf {
        let recovered = record.is_some_and(|record| record.recovered);
        altered(protocol::release(record, request, now), |new| match request.cause {
            ReleaseCause::NothingHappened => new.with_recovered(recovered),
            _ => new,
        })
    }
}

/// The same of an operator's word.
impl Rules for OperatorIsAskedAgain {
    fn resolve(record: Option<&Record>, word: &Resolution, now: Timestamp) -> Transition<ResolveAnswer> {
        let recovered = record.is_some_and(|record| record.recovered);
        altered(protocol::resolve(record, word, now), |new| new.with_recovered(recovered))
    }
}

/// The last attempt had its effect, and nobody is let to find out.
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

/// Whoever can find out what the last attempt did is an attempt more.
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

/// What the last run did is deleted where it is needed.
impl Rules for ExhaustionForgetsSteps {
    fn claim(record: Option<&Record>, floor: Fence, request: &Claim, now: Timestamp) -> ClaimOf {
        altered(protocol::claim(record, floor, request, now), |new| match new.result {
            Some(StoredResult::Tombstone(Tombstone::Exhausted)) => new.with_steps(Vec::new()),
            _ => new,
        })
    }
}
