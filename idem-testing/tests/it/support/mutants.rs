//! Broken protocols. Each is a bug that a library of this kind had, or leaves out one of our guards.
//!
//! Owns the list: [`for_each_mutant`](crate::for_each_mutant) has them all, so that neither the model check nor the
//! conformance kit can miss one.

use super::protocol::{
    self, Answer, ClaimAnswer, Fence, OnCrash, Owner, Record, ReleaseAnswer, ReleaseCause, RenewAnswer,
    Request, State, StoredResult, Timestamp, Transition,
};
pub use super::rules::shipped;
use super::rules::{Asked, Step};

/// Calls a macro with `mutant: PromiseItBreaks, WhatItIsFoundUnder, requests, rule;` for each mutant, and what its rules
/// say besides. The rule answers the requests, and the protocol all others.
macro_rules! for_each_mutant {
    ($callback:ident) => {
        $callback! {
            complete_without_owner: OnlyTheHolderActs, Plain, completions, as_if_held;
            release_without_owner: OnlyTheHolderActs, Plain, releases, as_if_held;
            renew_without_owner: OnlyTheHolderActs, Plain, renewals, as_if_held;
            step_without_owner: OnlyTheHolderActs, Steps, steps, as_if_held;
            fence_never_compared: OnlyTheHolderActs, Rerun, releases, as_if_its_owner_held;
            step_without_fence: OnlyTheHolderActs, Steps, steps, as_if_its_owner_held;
            resolve_keeps_the_owner: OnlyTheHolderActs, InDoubt, words, keeps_the_owner;
            unused_doubt_stays_its_holders: OnlyTheHolderActs, Settled, releases, keeps_the_fence;
            last_completion_wins: OneResult, Plain, completions, last_completion_wins;
            replay_is_empty: ReplaysAreTheResult, Plain, claims, empty_replay;
            lease_as_expiry: NothingIsForgotten, Plain, claims, lease_as_expiry,
                is_live = mutants::outlives_its_lease;
            delete_on_failure: NothingIsForgotten, Plain, releases, delete_on_failure;
            expiry_from_creation: NothingIsForgotten, Plain, completions, expiry_from_creation;
            purge_of_live_results: NothingIsForgotten, Plain, any_request, shipped,
                is_live = mutants::is_no_result;
            unused_counts_an_attempt: NothingIsForgotten, GivenBack, unused, keeps_the_attempt;
            probe_counts_an_attempt: NothingIsForgotten, Settled, doubtful, keeps_the_attempt;
            renewal_keeps_expiry: TheHolderIsHeard, Plain, renewals, keeps_expiry;
            complete_refused_after_the_lease: TheHolderIsHeard, Plain, completions, refused_after_the_lease;
            worker_in_doubt_is_cancelled: TheHolderIsHeard, InDoubt, renewals, without_doubts;
            result_of_a_doubt_refused: TheHolderIsHeard, InDoubt, completions, without_doubts;
            step_of_a_doubt_refused: TheHolderIsHeard, Steps, steps, without_doubts;
            failure_of_a_doubt_refused: TheHolderIsHeard, InDoubt, failed, without_doubts;
            get_then_set: RunningLeasesAreSafe, Plain, claims, shipped, claim_is_atomic = false;
            takeover_of_a_running_lease: RunningLeasesAreSafe, Plain, claims, running_leases_are_over;
            fence_from_the_clock_alone: FencesRise, Rerun, claims, fence_from_the_clock_alone;
            fence_forgotten_with_the_record: FencesRise, Rerun, claims, without_a_floor;
            no_claim_by_the_same_owner: AskingAgainFindsTheTruth, Plain, claims, owner_unknown;
            completion_not_repeatable: AskingAgainFindsTheTruth, Plain, completions, only_in_flight;
            mismatch_only_when_completed: SameArguments, Rerun, claims, mismatch_only_when_completed;
            in_doubt_rerun: InDoubtStartsOnce, InDoubt, claims, in_doubt_rerun;
            abandoned_is_released: InDoubtStartsOnce, InDoubt, releases, released_as_failed;
            doubtful_is_failed: InDoubtStartsOnce, Settled, doubtful, released_as_failed;
            in_doubt_expires: DoubtsHaveNoEnd, InDoubt, claims, expires_in_any_case;
            renewed_doubt_expires: DoubtsHaveNoEnd, InDoubt, renewals, expires_in_any_case;
            one_attempt_too_many: AttemptsEnd, Rerun, claims, one_attempt_too_many;
            runs_past_the_limit: AttemptsEnd, Settled, claims, runs_past_the_limit;
            backoff_ignored: AnswersAreTrue, Plain, claims, backoff_ignored;
            step_at_any_position: AnswersAreTrue, Steps, steps, step_at_any_position;
            unused_pins_its_fingerprint: AnswersAreTrue, GivenBack, releases, keeps_the_fingerprint;
            abandoned_is_forgotten: AnswersAreTrue, Plain, releases, abandoned_is_forgotten;
            worker_in_doubt_is_not_told: AnswersAreTrue, InDoubt, renewals, worker_in_doubt_is_not_told;
            nothing_happened_is_asked_again: AnswersAreTrue, Settled, nothing_happened, is_asked_again;
            operator_is_asked_again: AnswersAreTrue, Settled, words, is_asked_again;
            step_acknowledged_unwritten: StepsAreKept, Steps, steps, unwritten;
            takeover_forgets_steps: StepsAreKept, Steps, claims, forgets_steps;
            release_forgets_steps: StepsAreKept, Steps, releases, forgets_steps;
            expiry_keeps_steps: StepsAreKept, Steps, claims, keeps_steps;
            result_keeps_steps: StepsAreKept, Steps, completions, keeps_steps;
            late_claim_revives: LateCopiesReviveNothing, Rerun, claims, released_by_nobody;
            lapsed_lease_stays_busy: EveryKeyCanBeResolved, Plain, claims, lapsed_lease_stays_busy,
                is_live = mutants::is_always_live;
        }
    };
}

/// The record that is written keeps a part of the one before.
fn keeping(asked: &Asked<'_>, keep: impl FnOnce(Record, &Record) -> Record) -> Step {
    match asked.record {
        Some(before) => asked.writing(|new| keep(new, before)),
        None => asked.right(),
    }
}

/// A slow first worker overwrites what its successor has: its result, claim, lease or steps.
pub fn as_if_held(asked: &Asked<'_>) -> Step {
    asked.as_if_held()
}

/// Only the owner is compared, not the fence: a request of an earlier grant to the same owner succeeds.
pub fn as_if_its_owner_held(asked: &Asked<'_>) -> Step {
    let holder = asked.record.map(|record| record.owner);
    if asked.request.owner() == holder { asked.as_if_held() } else { asked.right() }
}

/// The worker in doubt takes the operator's decision for its own.
pub fn keeps_the_owner(asked: &Asked<'_>) -> Step {
    keeping(asked, |new, before| new.with_owner(before.owner))
}

/// Requests of a worker that released a settled doubt still count.
pub fn keeps_the_fence(asked: &Asked<'_>) -> Step {
    keeping(asked, |new, before| new.with_fence(before.fence))
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

/// A duplicate gets no result, only that it is a duplicate.
pub fn empty_replay(asked: &Asked<'_>) -> Step {
    asked.seeing(|record| {
        let result = record.result.as_ref().map(|_| StoredResult::Value(Default::default()));
        record.with_result(result)
    })
}

/// The lease is only the time after which the record expires. Then no record is left, no number of attempts and no fence.
pub fn lease_as_expiry(asked: &Asked<'_>) -> Step {
    let record = asked.record.filter(|record| outlives_its_lease(record, asked.now));
    protocol::apply(record, Fence::default(), asked.request, asked.now)
}

pub fn outlives_its_lease(record: &Record, now: Timestamp) -> bool {
    let lapsed = record.state == State::InFlight && record.lease_until <= now;
    !lapsed && protocol::is_live(record, now)
}

/// A body that fails deletes the record, with its fence and its attempts.
pub fn delete_on_failure(asked: &Asked<'_>) -> Step {
    let step = asked.right();
    match step.answer {
        Answer::Release(answer) if answer != ReleaseAnswer::Lost => {
            let deleted = asked.record.cloned().map(|record| {
                record.with_fence(Fence::default()).with_attempt(0).with_expires_at(Some(asked.now))
            });
            Transition::new(deleted, answer.into())
        }
        _ => step,
    }
}

/// A body that takes longer than the time to live leaves no result.
pub fn expiry_from_creation(asked: &Asked<'_>) -> Step {
    asked.writing(|new| {
        let expires_at = Some(new.created_at.after(new.ttl));
        new.with_expires_at(expires_at)
    })
}

/// Housekeeping deletes completed records instead of expired ones.
pub fn is_no_result(record: &Record, now: Timestamp) -> bool {
    record.state != State::Completed && protocol::is_live(record, now)
}

/// A caller that goes away before its body starts uses up an attempt, or one whose `recover` fails.
pub fn keeps_the_attempt(asked: &Asked<'_>) -> Step {
    keeping(asked, |new, before| new.with_attempt(before.attempt))
}

/// The record of a long body expires while the body runs, in spite of renewals.
pub fn keeps_expiry(asked: &Asked<'_>) -> Step {
    keeping(asked, |new, before| new.with_expires_at(before.expires_at))
}

/// A result is refused although no other worker has made one.
pub fn refused_after_the_lease(asked: &Asked<'_>) -> Step {
    asked.on(asked.record.filter(|record| record.state != State::InFlight || asked.now < record.lease_until))
}

/// What a worker in doubt reports is refused, and its body is dropped in the middle of its effect.
pub fn without_doubts(asked: &Asked<'_>) -> Step {
    asked.on(asked.record.filter(|record| record.state != State::InDoubt))
}

/// The store trusts a client's clock, which is ahead.
pub fn running_leases_are_over(asked: &Asked<'_>) -> Step {
    asked.seeing_in(State::InFlight, |record| {
        let lease_until = record.lease_until.min(asked.now);
        record.with_lease_until(lease_until)
    })
}

/// Two grants within one tick of the clock get the same fence.
pub fn fence_from_the_clock_alone(asked: &Asked<'_>) -> Step {
    let fence = Fence::new(asked.now.as_micros());
    match asked.right() {
        Transition { write: Some(new), answer: Answer::Claim(ClaimAnswer::Granted(grant)), .. } => {
            let answer = ClaimAnswer::Granted(grant.with_fence(fence));
            Transition::new(Some(new.with_fence(fence)), answer.into())
        }
        refused => refused,
    }
}

/// A store deletes a record and keeps no floor.
pub fn without_a_floor(asked: &Asked<'_>) -> Step {
    protocol::apply(asked.record, Fence::default(), asked.request, asked.now)
}

/// A lost network answer turns into a stuck key.
pub fn owner_unknown(asked: &Asked<'_>) -> Step {
    asked.seeing(|record| record.with_owner(Owner::NOBODY))
}

/// A worker whose answer was lost gets `Lost` for its recorded result.
pub fn only_in_flight(asked: &Asked<'_>) -> Step {
    asked.on(asked.record.filter(|record| record.state == State::InFlight))
}

/// Other arguments run under the key until there is a result.
pub fn mismatch_only_when_completed(asked: &Asked<'_>) -> Step {
    asked.seeing(|record| match record.state {
        State::Completed | State::Failed => record,
        _ => record.with_fingerprint(None),
    })
}

/// The crash policy is ignored.
pub fn in_doubt_rerun(asked: &Asked<'_>) -> Step {
    let Some(claim) = asked.claim() else { return asked.right() };
    let rerun = asked.record.map(|record| record.clone().with_on_crash(OnCrash::Rerun));
    let claim = claim.clone().with_on_crash(OnCrash::Rerun);
    protocol::apply(rerun.as_ref(), asked.floor, &claim.into(), asked.now)
}

/// A panic under `in_doubt`, or a doubtful release, counts as a reported failure.
pub fn released_as_failed(asked: &Asked<'_>) -> Step {
    match asked.request {
        Request::Release(release) => asked.asking(release.with_cause(ReleaseCause::Failed)),
        _ => asked.right(),
    }
}

/// A claim under `in_doubt` expires like any other, or a doubt that is renewed.
pub fn expires_in_any_case(asked: &Asked<'_>) -> Step {
    asked.writing(|new| {
        let expires_at = new.expires_at.or(Some(new.lease_until));
        new.with_expires_at(expires_at)
    })
}

/// The first attempt is not counted.
pub fn one_attempt_too_many(asked: &Asked<'_>) -> Step {
    let Some(claim) = asked.claim() else { return asked.right() };
    let max_attempts = claim.max_attempts.map(|most| most.saturating_add(1));
    asked.asking(claim.clone().with_max_attempts(max_attempts))
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

/// A released key can be claimed at once, whatever its `retry_after`.
pub fn backoff_ignored(asked: &Asked<'_>) -> Step {
    asked.seeing(|record| record.with_retry_at(Timestamp::default()))
}

/// A step is appended whatever its position is.
pub fn step_at_any_position(asked: &Asked<'_>) -> Step {
    let Request::RecordStep(step) = asked.request else { return asked.right() };
    let next = asked.record.map_or(0, |record| u32::try_from(record.steps.len()).unwrap_or(u32::MAX));
    asked.asking(step.clone().with_position(step.position.min(next)))
}

/// Arguments that never ran block a call with other arguments.
pub fn keeps_the_fingerprint(asked: &Asked<'_>) -> Step {
    keeping(asked, |new, before| new.with_fingerprint(before.fingerprint))
}

/// A dropped caller counts as a reported failure, so the next run does not recover first.
pub fn abandoned_is_forgotten(asked: &Asked<'_>) -> Step {
    asked.writing(|new| match new.state {
        State::Released => new.with_recovered(false),
        _ => new,
    })
}

/// A worker in doubt gets the same answer as any other.
pub fn worker_in_doubt_is_not_told(asked: &Asked<'_>) -> Step {
    let step = asked.right();
    match step.answer {
        Answer::Renew(RenewAnswer::HeldInDoubt) => Transition::new(step.write, RenewAnswer::Held.into()),
        _ => step,
    }
}

/// What `recover` found is not kept, or what an operator decided.
pub fn is_asked_again(asked: &Asked<'_>) -> Step {
    keeping(asked, |new, before| new.with_recovered(before.recovered))
}

/// A step is acknowledged without being written.
pub fn unwritten(asked: &Asked<'_>) -> Step {
    Transition::new(None, asked.right().answer)
}

/// A takeover, or a body that fails, writes a new record without the steps.
pub fn forgets_steps(asked: &Asked<'_>) -> Step {
    asked.writing(|new| new.with_steps(Vec::new()))
}

/// The next record of a key gets the steps of the expired one, or a record with a result keeps its steps.
pub fn keeps_steps(asked: &Asked<'_>) -> Step {
    keeping(asked, |new, before| new.with_steps(before.steps.clone()))
}

/// A late copy of a claim takes the key for a caller that has gone.
pub fn released_by_nobody(asked: &Asked<'_>) -> Step {
    asked.seeing_in(State::Released, |record| record.with_owner(Owner::NOBODY))
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
