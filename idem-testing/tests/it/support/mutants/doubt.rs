//! Broken protocols around runs with an unknown outcome: doubts, abandoned runs, claims that are released unused.

use crate::support::mutants::claims::lapsed;
use crate::support::protocol::{
    Answer, ClaimAnswer, OnCrash, Owner, Record, RenewAnswer, Request, State, StoredResult, Tombstone,
    Transition,
};
use crate::support::rules::{Asked, Step};

/// The answer to a store that does not find a record in doubt.
fn without_doubts(asked: &Asked<'_>) -> Step {
    asked.on(asked.record.filter(|record| record.state != State::InDoubt))
}

/// The record that is written keeps a part of the one before.
fn keeping(asked: &Asked<'_>, keep: impl FnOnce(Record, &Record) -> Record) -> Step {
    match asked.record {
        Some(before) => asked.writing(|new| keep(new, before)),
        None => asked.right(),
    }
}

/// A settled doubt that is released unused becomes a lapsed lease that expires, and then the body starts again.
pub fn unused_doubt_expires(asked: &Asked<'_>) -> Step {
    asked.writing(|new| match new.state {
        State::InDoubt => {
            let expires_at = Some(asked.now.after(new.ttl));
            new.with_state(State::InFlight).with_owner(Owner::NOBODY).with_expires_at(expires_at)
        }
        _ => new,
    })
}

/// Requests of a worker that released a settled doubt still count.
pub fn unused_doubt_stays_its_holders(asked: &Asked<'_>) -> Step {
    match asked.request {
        Request::Release(release) => asked.writing(|new| new.with_fence(release.fence)),
        _ => asked.right(),
    }
}

/// A caller that goes away before its body starts uses up an attempt.
pub fn unused_counts_an_attempt(asked: &Asked<'_>) -> Step {
    keeping(asked, |new, before| new.with_attempt(before.attempt))
}

/// Arguments that never ran block a call with other arguments.
pub fn unused_pins_its_fingerprint(asked: &Asked<'_>) -> Step {
    keeping(asked, |new, before| new.with_fingerprint(before.fingerprint))
}

/// A late copy of a claim takes the key for a caller that has gone.
pub fn late_claim_revives(asked: &Asked<'_>) -> Step {
    asked.seeing_in(State::Released, |record| record.with_owner(Owner::NOBODY))
}

/// A dropped caller counts as a reported failure, so the next run does not recover first.
pub fn abandoned_is_forgotten(asked: &Asked<'_>) -> Step {
    asked.writing(|new| match new.state {
        State::Released => new.with_recovered(false),
        _ => new,
    })
}

/// A body in doubt is dropped in the middle of its effect, although no other worker may run it.
pub fn worker_in_doubt_is_cancelled(asked: &Asked<'_>) -> Step {
    without_doubts(asked)
}

/// A worker in doubt gets the same answer as any other.
pub fn worker_in_doubt_is_not_told(asked: &Asked<'_>) -> Step {
    let step = asked.right();
    match step.answer {
        Answer::Renew(RenewAnswer::HeldInDoubt) => Transition::new(step.write, RenewAnswer::Held.into()),
        _ => step,
    }
}

/// A renewal ends the doubt that other callers were told about.
pub fn renewal_ends_the_doubt(asked: &Asked<'_>) -> Step {
    asked.writing(|new| {
        let expires_at = match new.on_crash {
            OnCrash::InDoubt => None,
            _ => Some(new.lease_until.after(new.ttl)),
        };
        new.with_state(State::InFlight).with_expires_at(expires_at)
    })
}

/// A renewal sets an expiry in every state, also in doubt.
pub fn renewed_doubt_expires(asked: &Asked<'_>) -> Step {
    asked.writing(|new| {
        let expires_at = Some(new.lease_until.after(new.ttl));
        new.with_expires_at(expires_at)
    })
}

/// The result of a worker in doubt is refused, so an operator must find out what that worker knows.
pub fn result_of_a_doubt_refused(asked: &Asked<'_>) -> Step {
    without_doubts(asked)
}

/// The same for a step.
pub fn step_of_a_doubt_refused(asked: &Asked<'_>) -> Step {
    without_doubts(asked)
}

/// A body in doubt that returns an error leaves the doubt.
pub fn failure_of_a_doubt_refused(asked: &Asked<'_>) -> Step {
    without_doubts(asked)
}

/// A doubt is settled while its worker is alive, so `recover` asks about an effect that is happening.
pub fn settles_while_its_worker_is_alive(asked: &Asked<'_>) -> Step {
    asked.seeing_in(State::InDoubt, |record| lapsed(record, asked.now))
}

/// If `recover` fails, an attempt counts although no body was started.
pub fn probe_counts_an_attempt(asked: &Asked<'_>) -> Step {
    keeping(asked, |new, before| new.with_attempt(before.attempt))
}

/// The outcome that `recover` found is not kept.
pub fn nothing_happened_is_asked_again(asked: &Asked<'_>) -> Step {
    keeping(asked, |new, before| new.with_recovered(before.recovered))
}

/// The same for an operator's decision.
pub fn operator_is_asked_again(asked: &Asked<'_>) -> Step {
    keeping(asked, |new, before| new.with_recovered(before.recovered))
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

/// A claim to recover after the last attempt also starts the body.
pub fn runs_past_the_limit(asked: &Asked<'_>) -> Step {
    let step = asked.right();
    match step.answer {
        Answer::Claim(ClaimAnswer::Granted(grant)) => {
            Transition::new(step.write, ClaimAnswer::Granted(grant.with_recover_only(false)).into())
        }
        _ => step,
    }
}

/// `Exhausted` deletes the steps, which show what the last run did.
pub fn exhaustion_forgets_steps(asked: &Asked<'_>) -> Step {
    asked.writing(|new| match new.result {
        Some(StoredResult::Tombstone(Tombstone::Exhausted)) => new.with_steps(Vec::new()),
        _ => new,
    })
}
