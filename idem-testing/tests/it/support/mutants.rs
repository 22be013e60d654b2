//! Broken protocols. Each is a bug that a library of this kind had, or leaves out one of our guards.
//!
//! Owns the list: [`for_each_mutant`](crate::for_each_mutant) has them all, so that neither the model check nor the
//! conformance kit can miss one. What each does wrong is in the files beside this one, `mutants_of_*.rs`, by topic.

use super::promise::Promise;
use super::protocol::{Record, State, Transition};
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

pub(super) fn state(record: Option<&Record>) -> Option<State> {
    record.map(|record| record.state)
}

/// The transition with a change of the record that it writes.
pub(super) fn altered<A>(step: Transition<A>, change: impl FnOnce(Record) -> Record) -> Transition<A> {
    Transition::new(step.write.map(change), step.answer)
}
