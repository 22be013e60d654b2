//! Broken protocols. Each is a bug that a library of this kind had, or leaves out one of our guards.
//!
//! Owns the list: [`for_each_mutant`](crate::for_each_mutant) has them all, so that neither the model check nor the
//! conformance kit can miss one. What each does wrong is in the files of the folder beside this one, by topic.

pub mod claims;
pub mod doubt;
pub mod guards;
pub mod records;
pub mod settling;
pub mod steps;

pub use claims::*;
pub use doubt::*;
pub use guards::*;
pub use records::*;
pub use settling::*;
pub use steps::*;

/// Calls a macro with `mutant: PromiseItBreaks, WhatItIsFoundUnder;` for each mutant, and what its rules say besides.
macro_rules! for_each_mutant {
    ($callback:ident) => {
        $callback! {
            complete_without_owner: OnlyTheHolderActs, Rerun;
            release_without_owner: OnlyTheHolderActs, Rerun;
            renew_without_owner: OnlyTheHolderActs, Rerun;
            state_only_guards: OnlyTheHolderActs, Rerun;
            fence_never_compared: OnlyTheHolderActs, Rerun;
            resolve_keeps_the_owner: OnlyTheHolderActs, InDoubt;
            last_completion_wins: OneResult, Rerun;
            replay_is_empty: ReplaysAreTheResult, Rerun;
            lease_as_expiry: NothingIsForgotten, Rerun, is_live = mutants::outlives_its_lease;
            delete_on_failure: NothingIsForgotten, Rerun;
            delete_on_failure_by_anybody: OnlyTheHolderActs, Rerun;
            expiry_from_creation: NothingIsForgotten, Rerun;
            renewal_keeps_expiry: TheHolderIsHeard, Plain;
            purge_of_live_results: NothingIsForgotten, Rerun, is_live = mutants::is_no_result;
            get_then_set: RunningLeasesAreSafe, Rerun, claim_is_atomic = false;
            takeover_of_a_running_lease: RunningLeasesAreSafe, Rerun;
            fence_not_rising: FencesRise, Rerun;
            fence_from_the_clock_alone: FencesRise, Rerun;
            fence_forgotten_with_the_record: FencesRise, Rerun;
            no_claim_by_the_same_owner: AskingAgainFindsTheTruth, Rerun;
            completion_not_repeatable: AskingAgainFindsTheTruth, Rerun;
            complete_refused_after_the_lease: TheHolderIsHeard, Rerun;
            mismatch_only_when_completed: SameArguments, Rerun;
            in_doubt_rerun: InDoubtStartsOnce, InDoubt;
            in_doubt_expires: DoubtsHaveNoEnd, InDoubt;
            abandoned_is_released: InDoubtStartsOnce, InDoubt;
            one_attempt_too_many: AttemptsEnd, Rerun;
            backoff_ignored: AnswersAreTrue, Rerun;
            lapsed_lease_stays_busy: EveryKeyCanBeResolved, Rerun, is_live = mutants::is_always_live;
            step_without_owner: OnlyTheHolderActs, Steps;
            step_without_fence: OnlyTheHolderActs, Steps;
            step_after_release: OnlyTheHolderActs, Steps;
            step_refused_after_the_lease: TheHolderIsHeard, Steps;
            step_not_repeatable: AskingAgainFindsTheTruth, Steps;
            step_at_any_position: AnswersAreTrue, Steps;
            step_recorded_twice: StepsAreKept, Steps;
            step_acknowledged_unwritten: StepsAreKept, Steps;
            takeover_forgets_steps: StepsAreKept, Steps;
            release_forgets_steps: StepsAreKept, Steps;
            expiry_keeps_steps: StepsAreKept, Steps;
            result_keeps_steps: StepsAreKept, Steps;
            doubtful_is_failed: InDoubtStartsOnce, Settled;
            settles_other_arguments: SameArguments, Settled;
            settles_its_own_doubt: InDoubtStartsOnce, Settled;
            settles_a_running_lease: RunningLeasesAreSafe, Settled;
            settles_beyond_the_attempts: AttemptsEnd, Settled;
            settled_without_an_attempt: NothingIsForgotten, Settled;
            unused_doubt_expires: DoubtsHaveNoEnd, Settled;
            unused_doubt_stays_its_holders: OnlyTheHolderActs, Settled;
            unused_counts_an_attempt: NothingIsForgotten, GivenBack;
            unused_pins_its_fingerprint: AnswersAreTrue, GivenBack;
            late_claim_revives: LateCopiesReviveNothing, Rerun;
            abandoned_is_forgotten: AnswersAreTrue, Rerun;
            worker_in_doubt_is_cancelled: TheHolderIsHeard, InDoubt;
            worker_in_doubt_is_not_told: AnswersAreTrue, InDoubt;
            renewal_ends_the_doubt: AnswersAreTrue, InDoubt;
            renewed_doubt_expires: DoubtsHaveNoEnd, InDoubt;
            result_of_a_doubt_refused: TheHolderIsHeard, InDoubt;
            step_of_a_doubt_refused: TheHolderIsHeard, Steps;
            failure_of_a_doubt_refused: TheHolderIsHeard, InDoubt;
            settles_while_its_worker_is_alive: RunningLeasesAreSafe, Alive;
            probe_counts_an_attempt: NothingIsForgotten, Settled;
            nothing_happened_is_asked_again: AnswersAreTrue, Settled;
            operator_is_asked_again: AnswersAreTrue, Settled;
            exhausted_though_it_recovers: AnswersAreTrue, Settled;
            runs_past_the_limit: AttemptsEnd, Settled;
            exhaustion_forgets_steps: StepsAreKept, OneAttempt;
        }
    };
}
