//! The list of all checks, by theme, each with the rule that it checks.

use super::{Check, checks};

/// All checks.
#[must_use]
pub fn all() -> &'static [Check] {
    ALL
}

macro_rules! table {
    ($($theme:ident { $($rule:literal { $($name:ident,)* })* })*) => {
        static ALL: &[Check] = &[$($($(
            Check {
                name: stringify!($name),
                theme: stringify!($theme),
                rule: $rule,
                run: |trial| Box::pin(checks::$theme::$name(trial)),
            },
        )*)*)*];
    };
}

table! {
    transitions {
        "from every state that a key can reach, each request gets the protocol's answer, and does what the protocol says" {
            a_claim_in_any_state, a_renewal_in_any_state, a_completion_in_any_state,
            a_release_in_any_state, an_operators_word_in_any_state, a_removal_in_any_state,
            any_request_on_a_record_with_steps,
        }
    }
    histories {
        "a long random history of several owners, with lost answers, is answered as the protocol says" {
            a_long_random_history,
        }
    }
    time {
        "a lease runs from its claim or renewal, and ends" {
            a_lease_ends, a_lease_and_a_lifetime_of_a_hundred_years_run,
        }
        "a released key can be claimed as soon as it is due" {
            a_key_that_was_not_due_is_due,
        }
        "a record is kept until its expires_at: from completion, from release, from the end of its lease" {
            a_lifetime_ends,
        }
        "what is in doubt, or in flight under that policy, never expires" {
            what_is_in_doubt_or_can_be_never_expires,
        }
    }
    fences {
        "fences rise also after the record is gone" {
            a_fence_rises_over_a_record_that_is_gone,
            a_fence_that_ran_ahead_of_the_clock_rises_over_being_forgotten,
        }
    }
    steps {
        "a step is any bytes, and comes back as it is" {
            a_step_is_all_that_it_was, a_thousand_steps_are_kept, large_steps_are_kept,
        }
        "a step over the limit is TooLarge, nothing is applied, and its tombstone is taken" {
            a_step_over_the_limit_is_refused_and_nothing_applied,
        }
        "record_step of another step at a position that is taken: Lost, and nothing changes" {
            another_step_at_a_position_that_is_taken_is_lost,
        }
        "a new generation has no steps of the one before" {
            a_new_generation_knows_no_step_of_the_one_before,
        }
    }
    purge {
        "a purge deletes no live record" {
            a_purge_deletes_no_live_record, a_key_starts_anew_before_and_after_it_was_purged,
        }
        "a purge deletes what is past its expires_at, at most as many as it is told, and says how many" {
            a_purge_keeps_to_its_limit_and_deletes_what_expired_once,
        }
    }
    results {
        "a result is any bytes, and comes back as they are" {
            every_byte_comes_back, bytes_that_mean_something_elsewhere_come_back,
            results_of_every_size_come_back,
        }
        "a result over the store's limit is TooLarge, and nothing is applied" {
            a_result_over_the_limit_is_refused_and_its_tombstone_taken,
            an_operators_result_over_the_limit_is_refused,
        }
    }
    keys {
        "a key is any text, NUL included, and equal only if all its bytes are" {
            each_character_makes_a_key_of_its_own, texts_that_mean_something_elsewhere_are_keys_of_their_own,
            the_longest_keys_are_told_apart_by_every_byte, every_operation_reaches_a_hostile_key,
        }
        "a claim with a fingerprint that differs in any byte: Mismatch" {
            fingerprints_are_told_apart_by_every_byte,
        }
        "forget deletes one record" {
            forgetting_one_key_leaves_the_others,
        }
        "keys of different scopes never meet" {
            a_scope_and_a_key_do_not_flow_into_each_other,
        }
    }
    races {
        "of any number that claim a key at once, one is granted" {
            of_hundreds_that_claim_a_key_one_is_granted,
            an_owner_that_asks_many_times_at_once_has_one_grant,
            a_key_is_never_held_twice_and_its_fences_rise,
        }
        "no race gets around a refusal" {
            of_hundreds_in_a_race_none_is_granted_what_is_refused,
            racing_claimers_do_not_exceed_a_limit_of_attempts,
        }
        "at most one result is recorded for a generation, and all see that one" {
            of_many_results_of_one_attempt_one_is_recorded, of_many_operators_one_resolves,
        }
        "a purge under load touches no live record" {
            a_purge_under_load_touches_no_live_record,
        }
    }
    duels {
        "success of renew, record_step and complete means that owner and fence were current at that moment" {
            a_late_request_and_a_takeover_exclude_each_other,
        }
        "of a result and a release at once, one is applied" {
            a_result_and_a_release_exclude_each_other,
        }
        "what was deleted does not come back, and what came back is not deleted" {
            a_result_that_meets_its_removal_does_not_come_back,
            a_purge_and_a_claim_of_an_expired_key_do_not_meet,
        }
    }
    listing {
        "a walk gives each record that is there throughout, as it is but without its result" {
            every_record_is_listed_as_it_is_and_a_walk_changes_nothing,
            a_listed_result_is_told_by_its_size_alone,
            a_walk_gives_what_stays_while_others_come_and_go,
        }
        "a walk gives no record that was not asked for or is gone" {
            a_walk_keeps_to_the_states_it_was_asked_for, a_walk_keeps_to_the_scope_it_was_asked_for,
        }
        "a page tells the store's clock, by which what is over is over" {
            a_pages_clock_tells_what_is_over,
        }
    }
    dropped {
        "dropping a returned future leaves the step applied or not, never half" {
            a_claim_whose_asker_went_away_is_granted_once_or_never,
            a_completion_whose_asker_went_away_is_whole_or_absent,
            a_release_whose_asker_went_away_is_whole_or_absent,
        }
    }
}
