//! Broken protocols that start a body again in spite of a doubt, or let the wrong claim settle it.

use crate::support::mutants::claims::lapsed;
use crate::support::protocol::{self, Answer, ClaimAnswer, OnCrash, Owner, ReleaseCause, State, Transition};
use crate::support::rules::{Asked, Step};

/// The crash policy is ignored.
pub fn in_doubt_rerun(asked: &Asked<'_>) -> Step {
    let Some(claim) = asked.claim() else { return asked.right() };
    let rerun = asked.record.map(|record| record.clone().with_on_crash(OnCrash::Rerun));
    let claim = claim.clone().with_on_crash(OnCrash::Rerun);
    protocol::apply(rerun.as_ref(), asked.floor, &claim.into(), asked.now)
}

/// A claim under `in_doubt` expires like any other.
pub fn in_doubt_expires(asked: &Asked<'_>) -> Step {
    asked.writing(|new| {
        let expires_at = new.expires_at.or(Some(new.lease_until));
        new.with_expires_at(expires_at)
    })
}

/// A panic under `in_doubt` counts as a reported failure.
pub fn abandoned_is_released(asked: &Asked<'_>) -> Step {
    asked.releasing_as(ReleaseCause::Failed)
}

/// A doubtful release counts as a reported failure.
pub fn doubtful_is_failed(asked: &Asked<'_>) -> Step {
    asked.releasing_as(ReleaseCause::Failed)
}

/// A claim with other arguments settles a doubt.
pub fn settles_other_arguments(asked: &Asked<'_>) -> Step {
    asked.seeing_in(State::InDoubt, |record| record.with_fingerprint(None))
}

/// A late copy of a claim is granted the key that its own owner left in doubt.
pub fn settles_its_own_doubt(asked: &Asked<'_>) -> Step {
    asked.seeing_in(State::InDoubt, |record| record.with_owner(Owner::NOBODY))
}

/// A caller that recovers does not wait for a worker with a running lease.
pub fn settles_a_running_lease(asked: &Asked<'_>) -> Step {
    match asked.claim() {
        Some(claim) if claim.recovers => asked.seeing_in(State::InFlight, |record| lapsed(record, asked.now)),
        _ => asked.right(),
    }
}

/// A doubt is settled, and its body started, without a limit of attempts.
pub fn settles_beyond_the_attempts(asked: &Asked<'_>) -> Step {
    match (asked.claim(), asked.state()) {
        (Some(claim), Some(State::InDoubt)) => asked.asking(claim.clone().with_max_attempts(None)),
        _ => asked.right(),
    }
}

/// A grant that settles a doubt counts no attempt.
pub fn settled_without_an_attempt(asked: &Asked<'_>) -> Step {
    let attempt = asked.record.map_or(0, |record| record.attempt);
    match (asked.state(), asked.right()) {
        (
            Some(State::InDoubt),
            Transition { write: Some(new), answer: Answer::Claim(ClaimAnswer::Granted(grant)), .. },
        ) => {
            let answer = ClaimAnswer::Granted(grant.with_attempt(attempt));
            Transition::new(Some(new.with_attempt(attempt)), answer.into())
        }
        (_, step) => step,
    }
}
