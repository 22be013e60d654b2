//! The list of all checks, by theme, each with the rule that it checks.

use super::{Check, checks};

/// All checks.
#[must_use]
pub fn all() -> &'static [Check] {
    ALL
}

macro_rules! table {
    (() $($theme:ident { $($rule:literal { $($name:ident,)* })* })*) => {
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

crate::__conformance_checks! { [table] () }

/// Passes the list of all checks to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_checks {
    ([$($callback:tt)*] ($($arguments:tt)*)) => {
        $($callback)*! {
            ($($arguments)*)
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
                "a lease runs from its claim or renewal, and ends to the microsecond" {
                    busy_tells_what_is_left_of_the_lease, a_lease_ends_at_its_last_microsecond_and_not_before,
                    a_lease_of_a_hundred_years_runs, a_takeover_can_be_taken_over,
                    a_lease_is_renewed_from_now_and_not_from_its_end,
                }
                "claim of a released key that is not due: RetryAt, with the time left" {
                    a_key_that_is_not_due_is_refused_until_it_is,
                }
                "a record is kept until its expires_at: from completion, from release, from the end of its lease" {
                    a_renewal_pushes_the_expiry, a_lifetime_counts_from_completion_and_not_from_creation,
                    a_lifetime_ends_at_its_last_microsecond_and_not_before, every_kind_of_record_expires,
                    replays_do_not_lengthen_a_lifetime, a_lapsed_claim_is_kept_for_its_lifetime,
                    a_result_is_kept_for_a_hundred_years, a_released_claim_keeps_its_attempts_until_it_expires,
                }
                "what is in doubt, or in flight under that policy, never expires" {
                    what_is_in_doubt_or_can_be_never_expires,
                }
            }
            fences {
                "fences rise also after the record is gone" {
                    a_fence_rises_over_expiry, a_fence_rises_over_a_purge,
                    a_fence_rises_over_being_forgotten, a_fence_rises_over_being_forgotten_at_once,
                    a_fence_that_ran_ahead_of_the_clock_rises_over_being_forgotten,
                }
            }
            fingerprints {
                "a fingerprint is its 32 bytes, whatever they are" {
                    fingerprints_that_differ_in_one_bit_are_different,
                    fingerprints_of_odd_bytes_are_kept_as_they_are,
                }
            }
            steps {
                "a step is any bytes, and comes back as it is" {
                    a_step_is_all_that_it_was, a_thousand_steps_are_kept, large_steps_are_kept,
                    keys_do_not_share_steps,
                }
                "record_step of another step, or beyond the next position: Lost, and nothing changes" {
                    another_step_at_a_position_that_is_taken_is_lost, a_step_beyond_the_next_position_is_lost,
                }
                "a step over the limit is TooLarge, nothing is applied, and its tombstone is taken" {
                    a_step_over_the_limit_is_refused_and_nothing_applied,
                }
                "steps are kept as long as their record, and a new generation has none of the one before" {
                    steps_are_kept_as_long_as_their_record, a_new_generation_knows_no_step_of_the_one_before,
                }
            }
            purge {
                "a purge deletes no live record" {
                    a_purge_deletes_no_live_record, a_purge_of_nothing_deletes_nothing,
                    a_purge_does_not_delete_a_key_that_came_back,
                }
                "a purge deletes what is past its expires_at, at most as many as it is told, and says how many" {
                    a_purge_deletes_what_expired_once, a_purge_keeps_to_its_limit, purges_come_to_an_end,
                    a_purge_without_end_is_allowed, a_key_starts_anew_after_it_was_purged,
                }
            }
            results {
                "a result is any bytes, and comes back as they are" {
                    an_empty_result_is_a_result, every_byte_comes_back, bytes_that_are_no_text_come_back,
                    bytes_that_mean_something_elsewhere_come_back, results_of_every_size_come_back,
                    the_largest_result_comes_back, many_results_do_not_mix,
                }
                "a result over the store's limit is TooLarge, and nothing is applied" {
                    a_result_over_the_limit_is_refused_and_nothing_applied,
                    a_tombstone_is_taken_in_place_of_a_result_over_the_limit,
                    an_operators_result_over_the_limit_is_refused,
                }
            }
            formats {
                "the first byte of a result, and of a step, says by which format it is written, and stays" {
                    the_format_of_a_result_comes_back, the_format_of_a_step_comes_back,
                }
            }
            keys {
                "a key is any text, NUL included" {
                    each_control_character_makes_a_key_of_its_own,
                    each_later_control_character_makes_a_key_of_its_own,
                    each_printable_character_makes_a_key_of_its_own, a_key_does_not_end_at_nul,
                    every_plane_of_unicode_makes_keys_of_its_own, every_operation_reaches_a_hostile_key,
                }
                "text that means something elsewhere is only text in a key" {
                    quotes_are_kept, braces_do_not_hide_a_part_of_a_key,
                    wildcards_match_nothing_but_themselves, percent_signs_are_not_decoded,
                    separators_are_not_parsed, text_that_is_a_command_elsewhere_is_kept,
                }
                "keys are equal only if all their bytes are" {
                    white_space_is_neither_trimmed_nor_folded,
                    numbers_that_are_equal_elsewhere_are_different_keys, case_is_kept,
                    look_alikes_are_different_keys, the_longest_keys_are_told_apart_by_every_byte,
                    the_longest_keys_may_be_of_any_characters, a_key_that_begins_another_is_another,
                }
                "forget deletes one record" {
                    forgetting_one_key_leaves_the_others,
                }
                "keys of different scopes never meet" {
                    a_scope_and_a_key_do_not_flow_into_each_other,
                    the_same_key_under_another_scope_is_another,
                }
            }
            races {
                "of any number that claim a key at once, one is granted" {
                    of_hundreds_that_claim_a_fresh_key_one_is_granted,
                    of_hundreds_that_claim_a_released_key_one_is_granted,
                    of_hundreds_that_find_a_lapsed_lease_one_takes_over,
                    of_hundreds_that_find_an_expired_record_one_is_granted,
                    an_owner_that_asks_many_times_at_once_has_one_grant,
                    races_for_different_keys_do_not_touch_each_other,
                    a_key_is_never_held_twice_and_its_fences_rise,
                }
                "no race gets around a refusal" {
                    of_hundreds_in_a_race_none_is_granted_a_key_in_doubt,
                    of_racing_fingerprints_one_is_recorded,
                    racing_claimers_do_not_exceed_a_limit_of_attempts,
                }
                "at most one result is recorded for a generation, and all see that one" {
                    of_many_results_of_one_attempt_one_is_recorded, of_many_operators_one_resolves,
                    all_that_wait_for_a_result_get_the_same,
                }
                "a purge under load touches no live record" {
                    a_purge_under_load_touches_no_live_record,
                }
            }
            duels {
                "success of renew, record_step, complete and release means that owner and fence were current at that moment" {
                    a_late_result_and_a_takeover_exclude_each_other,
                    a_late_renewal_and_a_takeover_exclude_each_other,
                    a_result_and_a_release_exclude_each_other, a_late_step_and_a_takeover_exclude_each_other,
                    a_step_and_a_result_leave_a_result_without_steps,
                }
                "of rivals for one position of the steps, or for one doubt, one gets it" {
                    rivals_for_one_position_leave_one_step, a_doubt_is_settled_by_one_of_many,
                }
                "what was deleted does not come back, and what came back is not deleted" {
                    a_result_that_meets_its_removal_does_not_come_back,
                    a_purge_and_a_claim_of_an_expired_key_do_not_meet,
                }
            }
            listing {
                "a walk gives each record that is there throughout, as it is but without its result" {
                    every_record_is_listed_as_it_is, a_listed_result_is_told_by_its_size_alone,
                    a_record_with_steps_is_listed_without_them,
                    pages_of_one_make_up_the_whole, records_of_odd_names_are_listed,
                    what_was_forgotten_is_not_listed,
                    a_walk_gives_what_stays_while_others_come_and_go,
                }
                "a walk gives no record that was not asked for" {
                    a_walk_keeps_to_the_states_it_was_asked_for, a_walk_keeps_to_the_scope_it_was_asked_for,
                }
                "a page tells the store's clock, by which what is over is over" {
                    a_pages_clock_tells_what_is_over,
                }
                "a walk changes nothing" {
                    a_walk_changes_nothing,
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
    };
}
