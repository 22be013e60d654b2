//! The checks of storage, of concurrent callers and of failures.

/// Adds these checks to the list that it gets, and passes the whole list to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_checks_of_storage {
    ([$($callback:tt)*] ($($arguments:tt)*) $($checks:tt)*) => {
        $($callback)*! {
            ($($arguments)*)
            $($checks)*
            fences {
                "distinct grants of a key have distinct, rising fences" {
                    a_fence_rises_over_a_release, a_fence_rises_over_a_takeover,
                    a_fence_rises_over_an_operators_word, a_fence_rises_over_a_whole_life,
                }
                "fences rise also after the record is gone" {
                    a_fence_rises_over_expiry, a_fence_rises_over_a_purge,
                    a_fence_rises_over_being_forgotten, a_fence_rises_over_being_forgotten_at_once,
                    a_fence_that_ran_ahead_of_the_clock_rises_over_being_forgotten,
                }
                "a fence moves with a grant and with nothing else" {
                    a_fence_does_not_move_without_a_grant, the_fence_of_the_grant_is_the_one_recorded,
                }
            }
            expiry {
                "a record past its expires_at is absent, deleted or not" {
                    an_expired_record_is_absent, an_expired_key_starts_anew,
                    an_expired_key_starts_anew_for_its_old_owner_too,
                    an_owner_of_an_expired_record_comes_too_late, every_kind_of_record_expires,
                }
                "a record is kept until its expires_at: from completion, from release, from the end of its lease" {
                    a_result_is_not_kept_by_the_lifetime_of_its_claim,
                    a_lifetime_counts_from_completion_and_not_from_creation,
                    replays_do_not_lengthen_a_lifetime,
                    a_lifetime_ends_at_its_last_microsecond_and_not_before,
                    a_lapsed_claim_is_kept_for_its_lifetime, a_result_is_kept_for_a_hundred_years,
                    a_released_claim_keeps_its_attempts_until_it_expires,
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
            records {
                "get gives the live record, and changes nothing" {
                    a_key_nobody_claimed_has_no_record, a_record_is_in_the_state_it_was_brought_to,
                    only_a_terminal_record_has_a_result, looking_at_a_record_changes_nothing,
                }
                "forget deletes one record in any state, and says whether there was one" {
                    forgetting_tells_whether_there_was_a_record, a_forgotten_key_starts_anew,
                    a_forgotten_owner_comes_too_late, forgetting_one_key_leaves_the_others,
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
            lost {
                "a request asked again because its answer was lost finds the truth" {
                    a_lost_grant_is_found_by_its_owner, a_lost_takeover_is_found_by_its_owner,
                    a_lost_refusal_is_told_again, a_lost_renewal_was_one, a_lost_completion_is_done,
                    a_completion_that_was_too_late_is_lost_however_often_it_is_asked,
                    a_lost_release_is_found_released, a_lost_release_into_doubt_is_found_in_doubt,
                    a_release_asked_again_does_not_free_who_claimed_meanwhile,
                    a_lost_word_of_an_operator_is_found_carried_out, a_lost_removal_is_found_removed,
                    a_lost_purge_did_its_work, a_lost_look_changes_nothing,
                    what_failed_before_it_was_applied_did_not_happen,
                }
                "a request that arrives late is judged when it arrives" {
                    a_completion_that_arrives_after_a_takeover_is_not_recorded,
                    a_release_that_arrives_after_a_takeover_frees_nobody,
                    a_renewal_that_arrives_after_a_release_holds_nothing,
                    a_claim_that_arrives_after_its_owner_released_changes_nothing,
                    a_claim_that_arrives_after_the_result_changes_nothing,
                }
                "dropping a returned future leaves the step applied or not, never half" {
                    a_claim_whose_asker_went_away_is_granted_once_or_never,
                    a_completion_whose_asker_went_away_is_whole_or_absent,
                    a_release_whose_asker_went_away_is_whole_or_absent,
                }
            }
            outage {
                "a call on a store that is down or hangs ends in time, with a typed error, and its body is not run" {
                    a_store_that_is_down_refuses_the_call_and_runs_nothing,
                    a_claim_that_hangs_is_given_up_in_time,
                    a_grant_that_never_arrives_frees_the_key_with_its_lease,
                }
                "an operation that fails open runs unprotected while the store is down" {
                    a_store_that_is_down_lets_an_open_operation_run,
                }
                "a store that is slow or loses answers does not make a body run twice" {
                    a_slow_store_is_waited_for, a_call_whose_grant_was_lost_runs_its_body_once,
                    renewals_that_fail_for_a_while_do_not_end_the_body,
                    a_duplicate_that_waits_outlasts_an_outage,
                }
                "a body's value or error reaches its caller, whatever becomes of the store" {
                    a_value_is_recorded_though_the_store_fails_at_first,
                    a_value_is_not_lost_with_a_store_that_goes_away,
                    a_release_that_fails_does_not_hide_the_bodys_error,
                    a_release_that_failed_is_made_up_for,
                    a_value_over_the_stores_limit_is_given_to_its_caller_and_not_run_again,
                }
            }
        }
    };
}
