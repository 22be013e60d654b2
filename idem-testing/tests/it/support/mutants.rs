//! Broken protocols. Each is a bug that a library of this kind had, or leaves out one of our guards.
//!
//! Owns the list: [`for_each_mutant`](crate::for_each_mutant) has them all, so that neither the model check nor the
//! conformance kit can miss one.

use super::promise::Promise;
use super::protocol::{
    self, Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, OnCrash, Owner, Record, RecordStep,
    RecordStepAnswer, Release, ReleaseAnswer, ReleaseCause, Renew, RenewAnswer, Resolution, ResolveAnswer,
    State, StoredResult, Timestamp, Transition,
};
use super::rules::Rules;
use super::setup::Under;

/// Rules that break a promise.
pub trait Mutant: Rules {
    /// The promise that the model must find broken.
    const BREAKS: Promise;
    /// The setup in which the model looks.
    const UNDER: Under;
}

/// Calls a macro with `test_name: Mutant, PromiseItBreaks, WhatItIsFoundUnder;` for each mutant.
macro_rules! for_each_mutant {
    ($callback:ident) => {
        $callback! {
            complete_without_owner: CompleteWithoutOwner, OnlyTheHolderActs, Rerun;
            release_without_owner: ReleaseWithoutOwner, OnlyTheHolderActs, Rerun;
            renew_without_owner: RenewWithoutOwner, OnlyTheHolderActs, Rerun;
            state_only_guards: StateOnlyGuards, OnlyTheHolderActs, Rerun;
            fence_never_compared: FenceNeverCompared, OnlyTheHolderActs, Rerun;
            resolve_keeps_the_owner: ResolveKeepsTheOwner, OnlyTheHolderActs, InDoubt;
            last_completion_wins: LastCompletionWins, OneResult, Rerun;
            replay_is_empty: ReplayIsEmpty, ReplaysAreTheResult, Rerun;
            lease_as_expiry: LeaseAsExpiry, NothingIsForgotten, Rerun;
            delete_on_failure: DeleteOnFailure, NothingIsForgotten, Rerun;
            delete_on_failure_by_anybody: DeleteOnFailureByAnybody, OnlyTheHolderActs, Rerun;
            expiry_from_creation: ExpiryFromCreation, NothingIsForgotten, Rerun;
            renewal_keeps_expiry: RenewalKeepsExpiry, TheHolderIsHeard, Plain;
            purge_of_live_results: PurgeOfLiveResults, NothingIsForgotten, Rerun;
            get_then_set: GetThenSet, RunningLeasesAreSafe, Rerun;
            takeover_of_a_running_lease: TakeoverOfARunningLease, RunningLeasesAreSafe, Rerun;
            fence_not_rising: FenceNotRising, FencesRise, Rerun;
            fence_from_the_clock_alone: FenceFromTheClockAlone, FencesRise, Rerun;
            fence_forgotten_with_the_record: FenceForgottenWithTheRecord, FencesRise, Rerun;
            no_claim_by_the_same_owner: NoClaimByTheSameOwner, AskingAgainFindsTheTruth, Rerun;
            completion_not_repeatable: CompletionNotRepeatable, AskingAgainFindsTheTruth, Rerun;
            complete_refused_after_the_lease: CompleteRefusedAfterTheLease, TheHolderIsHeard, Rerun;
            mismatch_only_when_completed: MismatchOnlyWhenCompleted, SameArguments, Rerun;
            in_doubt_rerun: InDoubtRerun, InDoubtStartsOnce, InDoubt;
            in_doubt_expires: InDoubtExpires, DoubtsHaveNoEnd, InDoubt;
            abandoned_is_released: AbandonedIsReleased, InDoubtStartsOnce, InDoubt;
            one_attempt_too_many: OneAttemptTooMany, AttemptsEnd, Rerun;
            backoff_ignored: BackoffIgnored, AnswersAreTrue, Rerun;
            lapsed_lease_stays_busy: LapsedLeaseStaysBusy, EveryKeyCanBeResolved, Rerun;
            step_without_owner: StepWithoutOwner, OnlyTheHolderActs, Steps;
            step_without_fence: StepWithoutFence, OnlyTheHolderActs, Steps;
            step_after_release: StepAfterRelease, OnlyTheHolderActs, Steps;
            step_refused_after_the_lease: StepRefusedAfterTheLease, TheHolderIsHeard, Steps;
            step_not_repeatable: StepNotRepeatable, AskingAgainFindsTheTruth, Steps;
            step_at_any_position: StepAtAnyPosition, AnswersAreTrue, Steps;
            step_recorded_twice: StepRecordedTwice, StepsAreKept, Steps;
            step_acknowledged_unwritten: StepAcknowledgedUnwritten, StepsAreKept, Steps;
            takeover_forgets_steps: TakeoverForgetsSteps, StepsAreKept, Steps;
            release_forgets_steps: ReleaseForgetsSteps, StepsAreKept, Steps;
            expiry_keeps_steps: ExpiryKeepsSteps, StepsAreKept, Steps;
            result_keeps_steps: ResultKeepsSteps, StepsAreKept, Steps;
            doubtful_is_failed: DoubtfulIsFailed, InDoubtStartsOnce, Settled;
            settles_other_arguments: SettlesOtherArguments, SameArguments, Settled;
            settles_its_own_doubt: SettlesItsOwnDoubt, InDoubtStartsOnce, Settled;
            settles_a_running_lease: SettlesARunningLease, RunningLeasesAreSafe, Settled;
            settles_beyond_the_attempts: SettlesBeyondTheAttempts, AttemptsEnd, Settled;
            settled_without_an_attempt: SettledWithoutAnAttempt, NothingIsForgotten, Settled;
            unused_doubt_expires: UnusedDoubtExpires, DoubtsHaveNoEnd, Settled;
            unused_doubt_stays_its_holders: UnusedDoubtStaysItsHolders, OnlyTheHolderActs, Settled;
            unused_counts_an_attempt: UnusedCountsAnAttempt, NothingIsForgotten, GivenBack;
            unused_pins_its_fingerprint: UnusedPinsItsFingerprint, AnswersAreTrue, GivenBack;
            late_claim_revives: LateClaimRevives, LateCopiesReviveNothing, Rerun;
            abandoned_is_forgotten: AbandonedIsForgotten, AnswersAreTrue, Rerun;
            worker_in_doubt_is_cancelled: WorkerInDoubtIsCancelled, TheHolderIsHeard, InDoubt;
            worker_in_doubt_is_not_told: WorkerInDoubtIsNotTold, AnswersAreTrue, InDoubt;
            renewal_ends_the_doubt: RenewalEndsTheDoubt, AnswersAreTrue, InDoubt;
            renewed_doubt_expires: RenewedDoubtExpires, DoubtsHaveNoEnd, InDoubt;
            result_of_a_doubt_refused: ResultOfADoubtRefused, TheHolderIsHeard, InDoubt;
            step_of_a_doubt_refused: StepOfADoubtRefused, TheHolderIsHeard, Steps;
            failure_of_a_doubt_refused: FailureOfADoubtRefused, TheHolderIsHeard, InDoubt;
            settles_while_its_worker_is_alive: SettlesWhileItsWorkerIsAlive, RunningLeasesAreSafe, Alive;
            probe_counts_an_attempt: ProbeCountsAnAttempt, NothingIsForgotten, Settled;
            nothing_happened_is_asked_again: NothingHappenedIsAskedAgain, AnswersAreTrue, Settled;
            operator_is_asked_again: OperatorIsAskedAgain, AnswersAreTrue, Settled;
            exhausted_though_it_recovers: ExhaustedThoughItRecovers, AnswersAreTrue, Settled;
            runs_past_the_limit: RunsPastTheLimit, AttemptsEnd, Settled;
            exhaustion_forgets_steps: ExhaustionForgetsSteps, StepsAreKept, OneAttempt;
        }
    };
}

macro_rules! declare {
    ($($test:ident: $mutant:ident, $promise:ident, $policy:ident;)*) => {
        $(
            #[derive(Clone, Copy, Debug)]
            pub struct $mutant;

            impl Mutant for $mutant {
                const BREAKS: Promise = Promise::$promise;
                const UNDER: Under = Under::$policy;
            }
        )*
    };
}

for_each_mutant!(declare);

fn state(record: Option<&Record>) -> Option<State> {
    record.map(|record| record.state)
}

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

/// What a deleted record leaves behind: an expired record without its fence and its attempts.
fn deleted(record: Option<&Record>, now: Timestamp) -> Option<Record> {
    let record = record?.clone();
    Some(record.with_fence(Fence::default()).with_attempt(0).with_expires_at(Some(now)))
}

/// The transition with a change of the record that it writes.
pub(super) fn altered<A>(step: Transition<A>, change: impl FnOnce(Record) -> Record) -> Transition<A> {
    Transition::new(step.write.map(change), step.answer)
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

/// A duplicate gets no result, only that it is a duplicate.
impl Rules for ReplayIsEmpty {
    fn claim(
        record: Option<&Record>,
        floor: Fence,
        request: &Claim,
        now: Timestamp,
    ) -> Transition<ClaimAnswer> {
        let empty = || StoredResult::Value(Default::default());
        let marked = record.map(|record| record.clone().with_result(record.result.as_ref().map(|_| empty())));
        protocol::claim(marked.as_ref(), floor, request, now)
    }
}

/// The lease is a time to live: when it is over, there is no record, no attempt count and no fence.
impl Rules for LeaseAsExpiry {
    fn claim(record: Option<&Record>, _: Fence, request: &Claim, now: Timestamp) -> Transition<ClaimAnswer> {
        protocol::claim(record.filter(|record| Self::is_live(record, now)), Fence::default(), request, now)
    }

    fn is_live(record: &Record, now: Timestamp) -> bool {
        let lapsed = record.state == State::InFlight && record.lease_until <= now;
        !lapsed && protocol::is_live(record, now)
    }
}

/// A body that fails deletes the record.
impl Rules for DeleteOnFailure {
    fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> Transition<ReleaseAnswer> {
        let step = protocol::release(record, request, now);
        match step.answer {
            ReleaseAnswer::Lost => step,
            answer => Transition::new(deleted(record, now), answer),
        }
    }
}

/// The same, without checking the owner.
impl Rules for DeleteOnFailureByAnybody {
    fn release(record: Option<&Record>, _: &Release, now: Timestamp) -> Transition<ReleaseAnswer> {
        Transition::new(deleted(record, now), ReleaseAnswer::Released)
    }
}

/// A body that takes longer than the time to live leaves no result.
impl Rules for ExpiryFromCreation {
    fn complete(record: Option<&Record>, request: &Complete, now: Timestamp) -> Transition<CompleteAnswer> {
        altered(protocol::complete(record, request, now), |new| {
            let expires_at = Some(new.created_at.after(new.ttl));
            new.with_expires_at(expires_at)
        })
    }
}

/// The record of a long body expires while the body runs, in spite of renewals.
impl Rules for RenewalKeepsExpiry {
    fn renew(record: Option<&Record>, request: &Renew, now: Timestamp) -> Transition<RenewAnswer> {
        let expires_at = record.and_then(|record| record.expires_at);
        altered(protocol::renew(record, request, now), |new| new.with_expires_at(expires_at))
    }
}

/// Housekeeping deletes completed records instead of expired ones.
impl Rules for PurgeOfLiveResults {
    fn is_live(record: &Record, now: Timestamp) -> bool {
        record.state != State::Completed && protocol::is_live(record, now)
    }
}

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

fn step_as_if_held(record: &Record, asked: &RecordStep, now: Timestamp) -> Transition<RecordStepAnswer> {
    let (owner, fence) = (record.owner, record.fence);
    protocol::record_step(Some(record), &asked.clone().with_owner(owner).with_fence(fence), now)
}

type StepOf = Transition<RecordStepAnswer>;

/// A slow first worker adds to its successor's steps.
impl Rules for StepWithoutOwner {
    fn record_step(record: Option<&Record>, request: &RecordStep, now: Timestamp) -> StepOf {
        match record {
            Some(record) => step_as_if_held(record, request, now),
            None => protocol::record_step(record, request, now),
        }
    }
}

/// Only the owner is compared, not the fence: a step of an earlier grant to the same owner succeeds.
impl Rules for StepWithoutFence {
    fn record_step(record: Option<&Record>, request: &RecordStep, now: Timestamp) -> StepOf {
        match record {
            Some(held) if held.owner == request.owner => step_as_if_held(held, request, now),
            _ => protocol::record_step(record, request, now),
        }
    }
}

/// A step is accepted from a worker that has released its claim.
impl Rules for StepAfterRelease {
    fn record_step(record: Option<&Record>, request: &RecordStep, now: Timestamp) -> StepOf {
        match record {
            Some(released) if released.state == State::Released => {
                let held = released.clone().with_state(State::InFlight);
                let step = protocol::record_step(Some(&held), request, now);
                altered(step, |new| new.with_state(State::Released))
            }
            _ => protocol::record_step(record, request, now),
        }
    }
}

/// The step of an effect that happened is refused after the lease, and the effect happens again.
impl Rules for StepRefusedAfterTheLease {
    fn record_step(record: Option<&Record>, request: &RecordStep, now: Timestamp) -> StepOf {
        protocol::record_step(record.filter(|record| now < record.lease_until), request, now)
    }
}

/// A worker whose answer was lost gets `Lost` for its recorded step.
impl Rules for StepNotRepeatable {
    fn record_step(record: Option<&Record>, request: &RecordStep, now: Timestamp) -> StepOf {
        let next = record.map_or(0, |record| record.steps.len());
        if u32::try_from(next) == Ok(request.position) {
            return protocol::record_step(record, request, now);
        }
        Transition::new(None, RecordStepAnswer::Lost)
    }
}

/// A step is appended whatever its position is.
impl Rules for StepAtAnyPosition {
    fn record_step(record: Option<&Record>, request: &RecordStep, now: Timestamp) -> StepOf {
        let next = record.map_or(0, |record| u32::try_from(record.steps.len()).unwrap_or(u32::MAX));
        let position = request.position.min(next);
        protocol::record_step(record, &request.clone().with_position(position), now)
    }
}

/// A repeated step is recorded twice.
impl Rules for StepRecordedTwice {
    fn record_step(record: Option<&Record>, request: &RecordStep, now: Timestamp) -> StepOf {
        let step = protocol::record_step(record, request, now);
        match (record, &step) {
            (Some(record), Transition { write: None, answer: RecordStepAnswer::Recorded, .. }) => {
                let mut new = record.clone();
                new.steps.push(request.step.clone());
                Transition::new(Some(new), RecordStepAnswer::Recorded)
            }
            _ => step,
        }
    }
}

/// A step is acknowledged without being written.
impl Rules for StepAcknowledgedUnwritten {
    fn record_step(record: Option<&Record>, request: &RecordStep, now: Timestamp) -> StepOf {
        protocol::record_step(record, request, now).with_write(None)
    }
}

/// A takeover writes a new record without the steps.
impl Rules for TakeoverForgetsSteps {
    fn claim(
        record: Option<&Record>,
        floor: Fence,
        request: &Claim,
        now: Timestamp,
    ) -> Transition<ClaimAnswer> {
        altered(protocol::claim(record, floor, request, now), |new| {
            if new.recovered { new.with_steps(Vec::new()) } else { new }
        })
    }
}

/// After a failed body, the steps are gone.
impl Rules for ReleaseForgetsSteps {
    fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> Transition<ReleaseAnswer> {
        altered(protocol::release(record, request, now), |new| new.with_steps(Vec::new()))
    }
}

/// The next record of a key gets the steps of the expired one.
impl Rules for ExpiryKeepsSteps {
    fn claim(
        record: Option<&Record>,
        floor: Fence,
        request: &Claim,
        now: Timestamp,
    ) -> Transition<ClaimAnswer> {
        let steps = record.map_or_else(Vec::new, |record| record.steps.clone());
        altered(protocol::claim(record, floor, request, now), |new| match new.state {
            State::InFlight => new.with_steps(steps),
            _ => new,
        })
    }
}

/// A record with a result keeps its steps.
impl Rules for ResultKeepsSteps {
    fn complete(record: Option<&Record>, request: &Complete, now: Timestamp) -> Transition<CompleteAnswer> {
        let steps = record.map_or_else(Vec::new, |record| record.steps.clone());
        altered(protocol::complete(record, request, now), |new| new.with_steps(steps))
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
