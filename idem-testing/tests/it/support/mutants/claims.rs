//! Broken answers to claims: who is granted the key, with which fence, attempt and steps, and who is refused.

use crate::support::protocol::{
    self, Answer, ClaimAnswer, Fence, Grant, OnCrash, Owner, Record, State, StoredResult, Timestamp,
    Transition,
};
use crate::support::rules::{Asked, Step};

/// What the protocol would do if the lease of a record in this state were over.
fn lapsed(asked: &Asked<'_>, state: State) -> Step {
    asked.seeing_in(state, |record| {
        let lease_until = record.lease_until.min(asked.now);
        record.with_lease_until(lease_until)
    })
}

/// What the protocol does, with a change of the grant and its record.
fn granting(asked: &Asked<'_>, change: impl FnOnce(Record, Grant) -> (Record, Grant)) -> Step {
    match asked.right() {
        Transition { write: Some(new), answer: Answer::Claim(ClaimAnswer::Granted(grant)), .. } => {
            let (new, grant) = change(new, grant);
            Transition::new(Some(new), ClaimAnswer::Granted(grant).into())
        }
        refused => refused,
    }
}

/// A duplicate learns only that it is a duplicate, and gets no result.
pub fn empty_replay(asked: &Asked<'_>) -> Step {
    asked.seeing(|record| {
        let result = record.result.as_ref().map(|_| StoredResult::Value(Default::default()));
        record.with_result(result)
    })
}

/// The lease is the lifetime of the record. When the lease ends, the record is gone, with the number of
/// attempts and the fence.
pub fn lease_as_expiry(asked: &Asked<'_>) -> Step {
    let record = asked.record.filter(|record| outlives_its_lease(record, asked.now));
    protocol::apply(record, Fence::default(), asked.request, asked.now)
}

pub fn outlives_its_lease(record: &Record, now: Timestamp) -> bool {
    let lapsed = record.state == State::InFlight && record.lease_until <= now;
    !lapsed && protocol::is_live(record, now)
}

/// A worker that dies blocks its key for ever.
pub fn lapsed_lease_stays_busy(asked: &Asked<'_>) -> Step {
    let step = asked.right();
    match (asked.claim(), asked.state(), &step.write) {
        (Some(claim), Some(State::InFlight), Some(_)) => {
            Transition::new(None, ClaimAnswer::Busy { retry_after: claim.lease }.into())
        }
        _ => step,
    }
}

pub fn is_always_live(_: &Record, _: Timestamp) -> bool {
    true
}

/// Two bugs have this effect. The store trusts the clock of a client, and this clock is ahead. Or a caller
/// that recovers does not wait for a running lease.
pub fn running_leases_are_over(asked: &Asked<'_>) -> Step {
    lapsed(asked, State::InFlight)
}

/// A claim takes over a key in doubt while the worker in doubt is still alive. So `recover` asks about an
/// effect that is happening now.
pub fn workers_in_doubt_are_dead(asked: &Asked<'_>) -> Step {
    lapsed(asked, State::InDoubt)
}

/// A key gets one fence and keeps it.
pub fn fence_not_rising(asked: &Asked<'_>) -> Step {
    let Some(old) = asked.record else { return asked.right() };
    granting(asked, |new, grant| (new.with_fence(old.fence), grant.with_fence(old.fence)))
}

/// Two grants within one tick of the clock get the same fence.
pub fn fence_from_the_clock_alone(asked: &Asked<'_>) -> Step {
    let fence = Fence::new(asked.now.as_micros());
    granting(asked, |new, grant| (new.with_fence(fence), grant.with_fence(fence)))
}

/// The store deletes a record and does not keep its fence as the floor of later fences.
pub fn without_a_floor(asked: &Asked<'_>) -> Step {
    protocol::apply(asked.record, Fence::default(), asked.request, asked.now)
}

/// The store forgets the owner, so after a lost answer the key is busy for its own owner.
pub fn owner_unknown(asked: &Asked<'_>) -> Step {
    asked.seeing(|record| record.with_owner(Owner::NOBODY))
}

/// A late copy of a claim takes the key for a caller that has gone.
pub fn released_by_nobody(asked: &Asked<'_>) -> Step {
    asked.seeing_in(State::Released, |record| record.with_owner(Owner::NOBODY))
}

/// A late copy of a claim is granted the key that its own owner left in doubt.
pub fn doubts_of_nobody(asked: &Asked<'_>) -> Step {
    asked.seeing_in(State::InDoubt, |record| record.with_owner(Owner::NOBODY))
}

/// Until there is a result, a call with other arguments runs under the key.
pub fn mismatch_only_when_completed(asked: &Asked<'_>) -> Step {
    asked.seeing(|record| match record.state {
        State::Completed | State::Failed => record,
        _ => record.with_fingerprint(None),
    })
}

/// A claim with other arguments takes over a key in doubt.
pub fn settles_other_arguments(asked: &Asked<'_>) -> Step {
    asked.seeing_in(State::InDoubt, |record| record.with_fingerprint(None))
}

/// The crash policy is ignored.
pub fn in_doubt_rerun(asked: &Asked<'_>) -> Step {
    let Some(claim) = asked.claim() else { return asked.right() };
    let rerun = asked.record.map(|record| record.clone().with_on_crash(OnCrash::Rerun));
    let claim = claim.clone().with_on_crash(OnCrash::Rerun);
    protocol::apply(rerun.as_ref(), asked.floor, &claim.into(), asked.now)
}

/// A record under `in_doubt` expires when its lease ends.
pub fn in_doubt_expires(asked: &Asked<'_>) -> Step {
    asked.writing(|new| {
        let expires_at = new.expires_at.or(Some(new.lease_until));
        new.with_expires_at(expires_at)
    })
}

/// The first attempt does not count towards the limit.
pub fn one_attempt_too_many(asked: &Asked<'_>) -> Step {
    let Some(claim) = asked.claim() else { return asked.right() };
    let max_attempts = claim.max_attempts.map(|most| most.saturating_add(1));
    asked.asking(claim.clone().with_max_attempts(max_attempts))
}

/// A claim takes over a key in doubt and starts the body, although no attempt is left.
pub fn settles_beyond_the_attempts(asked: &Asked<'_>) -> Step {
    match (asked.claim(), asked.state()) {
        (Some(claim), Some(State::InDoubt)) => asked.asking(claim.clone().with_max_attempts(None)),
        _ => asked.right(),
    }
}

/// A grant of a key in doubt does not count as an attempt.
pub fn settled_without_an_attempt(asked: &Asked<'_>) -> Step {
    match asked.record {
        Some(old) if old.state == State::InDoubt => {
            granting(asked, |new, grant| (new.with_attempt(old.attempt), grant.with_attempt(old.attempt)))
        }
        _ => asked.right(),
    }
}

/// A claim after the last attempt may only recover, but it also starts the body.
pub fn runs_past_the_limit(asked: &Asked<'_>) -> Step {
    let step = asked.right();
    match step.answer {
        Answer::Claim(ClaimAnswer::Granted(grant)) => {
            Transition::new(step.write, ClaimAnswer::Granted(grant.with_recover_only(false)).into())
        }
        _ => step,
    }
}

/// After the last attempt, no caller may recover, although the attempt may have had its effect.
pub fn exhausted_though_it_recovers(asked: &Asked<'_>) -> Step {
    let step = asked.right();
    match (asked.claim(), &step.answer, &step.write) {
        (Some(claim), Answer::Claim(ClaimAnswer::Granted(grant)), Some(_)) if grant.recover_only => {
            asked.asking(claim.clone().with_recovers(false))
        }
        _ => step,
    }
}

/// A released key can be claimed at once, whatever its `retry_after`.
pub fn backoff_ignored(asked: &Asked<'_>) -> Step {
    asked.seeing(|record| record.with_retry_at(Timestamp::default()))
}

/// A takeover writes a new record without the steps.
pub fn takeover_forgets_steps(asked: &Asked<'_>) -> Step {
    asked.writing(|new| if new.recovered { new.with_steps(Vec::new()) } else { new })
}

/// `Exhausted` deletes the steps, although they show what the last run did.
pub fn exhaustion_forgets_steps(asked: &Asked<'_>) -> Step {
    asked.writing(|new| if new.state == State::Failed { new.with_steps(Vec::new()) } else { new })
}
