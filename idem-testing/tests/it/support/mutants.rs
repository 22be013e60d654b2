//! Mutants of the protocol's rules. Each has a bug that a library of this kind had, or lacks one of our
//! guards.
//!
//! Owns the list of all mutants, [`for_each_mutant`](crate::for_each_mutant), so that neither the model check
//! nor the conformance kit can miss one. The rules are in the folder beside this file.

mod claims;
mod holders;

pub use super::rules::shipped;
pub use claims::*;
pub use holders::*;

/// Calls a macro with `mutant: PromiseItBreaks, WhatItIsFoundUnder, requests, rule;` for each mutant. The
/// rule answers the requests that `requests` selects; the protocol answers all others. Further settings of
/// the mutant may follow the rule.
macro_rules! for_each_mutant {
    ($callback:ident) => {
        $callback! {
            complete_without_owner: OnlyTheHolderActs, Plain, completions, as_if_held;
            release_without_owner: OnlyTheHolderActs, Plain, releases, as_if_held;
            renew_without_owner: OnlyTheHolderActs, Plain, renewals, as_if_held;
            step_without_owner: OnlyTheHolderActs, Steps, steps, as_if_held;
            fence_never_compared: OnlyTheHolderActs, Rerun, releases, as_if_its_owner_held;
            step_without_fence: OnlyTheHolderActs, Steps, steps, as_if_its_owner_held;
            state_only_guards: OnlyTheHolderActs, Plain, any_request, state_only_guards;
            delete_on_failure_by_anybody: OnlyTheHolderActs, Plain, releases, delete_on_failure_by_anybody;
            step_after_release: OnlyTheHolderActs, Steps, steps, step_after_release;
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
            settled_without_an_attempt: NothingIsForgotten, Settled, claims, settled_without_an_attempt;
            renewal_keeps_expiry: TheHolderIsHeard, Plain, renewals, keeps_expiry;
            complete_refused_after_the_lease: TheHolderIsHeard, Plain, completions, refused_after_the_lease;
            step_refused_after_the_lease: TheHolderIsHeard, Steps, steps, step_refused_after_the_lease;
            worker_in_doubt_is_cancelled: TheHolderIsHeard, InDoubt, renewals, without_doubts;
            result_of_a_doubt_refused: TheHolderIsHeard, InDoubt, completions, without_doubts;
            step_of_a_doubt_refused: TheHolderIsHeard, Steps, steps, without_doubts;
            failure_of_a_doubt_refused: TheHolderIsHeard, InDoubt, failed, without_doubts;
            get_then_set: RunningLeasesAreSafe, Plain, claims, shipped, claim_is_atomic = false;
            takeover_of_a_running_lease: RunningLeasesAreSafe, Plain, claims, running_leases_are_over;
            settles_a_running_lease: RunningLeasesAreSafe, Settled, recovering, running_leases_are_over;
            settles_while_its_worker_is_alive: RunningLeasesAreSafe, Alive, claims, workers_in_doubt_are_dead;
            fence_not_rising: FencesRise, Plain, claims, fence_not_rising;
            fence_from_the_clock_alone: FencesRise, Rerun, claims, fence_from_the_clock_alone;
            fence_forgotten_with_the_record: FencesRise, Rerun, claims, without_a_floor;
            no_claim_by_the_same_owner: AskingAgainFindsTheTruth, Plain, claims, owner_unknown;
            completion_not_repeatable: AskingAgainFindsTheTruth, Plain, completions, only_in_flight;
            step_not_repeatable: AskingAgainFindsTheTruth, Steps, steps, step_not_repeatable;
            mismatch_only_when_completed: SameArguments, Rerun, claims, mismatch_only_when_completed;
            settles_other_arguments: SameArguments, Settled, claims, settles_other_arguments;
            in_doubt_rerun: InDoubtStartsOnce, InDoubt, claims, in_doubt_rerun;
            abandoned_is_released: InDoubtStartsOnce, InDoubt, releases, released_as_failed;
            doubtful_is_failed: InDoubtStartsOnce, Settled, doubtful, released_as_failed;
            settles_its_own_doubt: InDoubtStartsOnce, Settled, claims, doubts_of_nobody;
            in_doubt_expires: DoubtsHaveNoEnd, InDoubt, claims, in_doubt_expires;
            renewed_doubt_expires: DoubtsHaveNoEnd, InDoubt, renewals, renewed_doubt_expires;
            unused_doubt_expires: DoubtsHaveNoEnd, Settled, unused, unused_doubt_expires;
            one_attempt_too_many: AttemptsEnd, Rerun, claims, one_attempt_too_many;
            settles_beyond_the_attempts: AttemptsEnd, Settled, claims, settles_beyond_the_attempts;
            runs_past_the_limit: AttemptsEnd, Settled, claims, runs_past_the_limit;
            backoff_ignored: AnswersAreTrue, Plain, claims, backoff_ignored;
            step_at_any_position: AnswersAreTrue, Steps, steps, step_at_any_position;
            unused_pins_its_fingerprint: AnswersAreTrue, GivenBack, releases, keeps_the_fingerprint;
            abandoned_is_forgotten: AnswersAreTrue, Plain, releases, abandoned_is_forgotten;
            worker_in_doubt_is_not_told: AnswersAreTrue, InDoubt, renewals, worker_in_doubt_is_not_told;
            renewal_ends_the_doubt: AnswersAreTrue, InDoubt, renewals, renewal_ends_the_doubt;
            nothing_happened_is_asked_again: AnswersAreTrue, Settled, nothing_happened, is_asked_again;
            operator_is_asked_again: AnswersAreTrue, Settled, words, is_asked_again;
            exhausted_though_it_recovers: AnswersAreTrue, Settled, claims, exhausted_though_it_recovers;
            step_acknowledged_unwritten: StepsAreKept, Steps, steps, unwritten;
            step_recorded_twice: StepsAreKept, Steps, steps, step_recorded_twice;
            takeover_forgets_steps: StepsAreKept, Steps, claims, takeover_forgets_steps;
            exhaustion_forgets_steps: StepsAreKept, OneAttempt, claims, exhaustion_forgets_steps;
            release_forgets_steps: StepsAreKept, Steps, releases, forgets_steps;
            expiry_keeps_steps: StepsAreKept, Steps, claims, keeps_steps;
            result_keeps_steps: StepsAreKept, Steps, completions, keeps_steps;
            late_claim_revives: LateCopiesReviveNothing, Rerun, claims, released_by_nobody;
            lapsed_lease_stays_busy: EveryKeyCanBeResolved, Plain, claims, lapsed_lease_stays_busy,
                is_live = mutants::is_always_live;
        }
    };
}
