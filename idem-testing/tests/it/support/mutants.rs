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

/// Calls a macro with `mutant: PromiseItBreaks, WhatItIsFoundUnder, requests;` for each mutant, and what its rules say besides.
/// The requests are those that it answers; the protocol answers the others.
macro_rules! for_each_mutant {
    ($callback:ident) => {
        $callback! {
            complete_without_owner: OnlyTheHolderActs, Plain, completions;
            release_without_owner: OnlyTheHolderActs, Plain, releases;
            renew_without_owner: OnlyTheHolderActs, Plain, renewals;
            state_only_guards: OnlyTheHolderActs, Plain, any_request;
            fence_never_compared: OnlyTheHolderActs, Rerun, releases;
            resolve_keeps_the_owner: OnlyTheHolderActs, InDoubt, words;
            last_completion_wins: OneResult, Plain, completions;
            replay_is_empty: ReplaysAreTheResult, Plain, claims;
            lease_as_expiry: NothingIsForgotten, Plain, claims, is_live = mutants::outlives_its_lease;
            delete_on_failure: NothingIsForgotten, Plain, releases;
            delete_on_failure_by_anybody: OnlyTheHolderActs, Plain, releases;
            expiry_from_creation: NothingIsForgotten, Plain, completions;
            renewal_keeps_expiry: TheHolderIsHeard, Plain, renewals;
            purge_of_live_results: NothingIsForgotten, Plain, any_request, is_live = mutants::is_no_result;
            get_then_set: RunningLeasesAreSafe, Plain, claims, claim_is_atomic = false;
            takeover_of_a_running_lease: RunningLeasesAreSafe, Plain, claims;
            fence_not_rising: FencesRise, Plain, claims;
            fence_from_the_clock_alone: FencesRise, Rerun, claims;
            fence_forgotten_with_the_record: FencesRise, Rerun, claims;
            no_claim_by_the_same_owner: AskingAgainFindsTheTruth, Plain, claims;
            completion_not_repeatable: AskingAgainFindsTheTruth, Plain, completions;
            complete_refused_after_the_lease: TheHolderIsHeard, Plain, completions;
            mismatch_only_when_completed: SameArguments, Rerun, claims;
            in_doubt_rerun: InDoubtStartsOnce, InDoubt, claims;
            in_doubt_expires: DoubtsHaveNoEnd, InDoubt, claims;
            abandoned_is_released: InDoubtStartsOnce, InDoubt, releases;
            one_attempt_too_many: AttemptsEnd, Rerun, claims;
            backoff_ignored: AnswersAreTrue, Plain, claims;
            lapsed_lease_stays_busy: EveryKeyCanBeResolved, Plain, claims, is_live = mutants::is_always_live;
            step_without_owner: OnlyTheHolderActs, Steps, steps;
            step_without_fence: OnlyTheHolderActs, Steps, steps;
            step_after_release: OnlyTheHolderActs, Steps, steps;
            step_refused_after_the_lease: TheHolderIsHeard, Steps, steps;
            step_not_repeatable: AskingAgainFindsTheTruth, Steps, steps;
            step_at_any_position: AnswersAreTrue, Steps, steps;
            step_recorded_twice: StepsAreKept, Steps, steps;
            step_acknowledged_unwritten: StepsAreKept, Steps, steps;
            takeover_forgets_steps: StepsAreKept, Steps, claims;
            release_forgets_steps: StepsAreKept, Steps, releases;
            expiry_keeps_steps: StepsAreKept, Steps, claims;
            result_keeps_steps: StepsAreKept, Steps, completions;
            doubtful_is_failed: InDoubtStartsOnce, Settled, doubtful;
            settles_other_arguments: SameArguments, Settled, claims;
            settles_its_own_doubt: InDoubtStartsOnce, Settled, claims;
            settles_a_running_lease: RunningLeasesAreSafe, Settled, claims;
            settles_beyond_the_attempts: AttemptsEnd, Settled, claims;
            settled_without_an_attempt: NothingIsForgotten, Settled, claims;
            unused_doubt_expires: DoubtsHaveNoEnd, Settled, unused;
            unused_doubt_stays_its_holders: OnlyTheHolderActs, Settled, releases;
            unused_counts_an_attempt: NothingIsForgotten, GivenBack, unused;
            unused_pins_its_fingerprint: AnswersAreTrue, GivenBack, releases;
            late_claim_revives: LateCopiesReviveNothing, Rerun, claims;
            abandoned_is_forgotten: AnswersAreTrue, Plain, releases;
            worker_in_doubt_is_cancelled: TheHolderIsHeard, InDoubt, renewals;
            worker_in_doubt_is_not_told: AnswersAreTrue, InDoubt, renewals;
            renewal_ends_the_doubt: AnswersAreTrue, InDoubt, renewals;
            renewed_doubt_expires: DoubtsHaveNoEnd, InDoubt, renewals;
            result_of_a_doubt_refused: TheHolderIsHeard, InDoubt, completions;
            step_of_a_doubt_refused: TheHolderIsHeard, Steps, steps;
            failure_of_a_doubt_refused: TheHolderIsHeard, InDoubt, failed;
            settles_while_its_worker_is_alive: RunningLeasesAreSafe, Alive, claims;
            probe_counts_an_attempt: NothingIsForgotten, Settled, doubtful;
            nothing_happened_is_asked_again: AnswersAreTrue, Settled, nothing_happened;
            operator_is_asked_again: AnswersAreTrue, Settled, words;
            exhausted_though_it_recovers: AnswersAreTrue, Settled, claims;
            runs_past_the_limit: AttemptsEnd, Settled, claims;
            exhaustion_forgets_steps: StepsAreKept, OneAttempt, claims;
        }
    };
}
