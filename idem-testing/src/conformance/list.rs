//! The list of all checks: by theme, and under the rule that each holds a store against.

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

/// Hands the list of all checks to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_checks {
    ([$($callback:tt)*] ($($arguments:tt)*)) => {
        $($callback)*! {
            ($($arguments)*)
            claim {
                "claim of an absent key: it is in flight, a first attempt, and Granted" {
                    a_fresh_key_is_granted, a_grant_is_recorded_as_it_was_asked,
                }
                "claim of a key in flight whose lease runs: Busy, with the time left, and nothing changes" {
                    a_running_lease_is_busy_to_others, busy_tells_what_is_left_of_the_lease,
                    a_refused_claim_changes_nothing, a_lease_of_a_hundred_years_runs,
                }
                "claim of a key in flight by its own owner: Granted with the same fence, and nothing changes" {
                    the_same_owner_is_granted_the_same_again, asking_again_does_not_extend_the_lease,
                    asking_again_counts_no_attempt,
                    the_owner_of_a_lapsed_lease_still_has_it_until_it_is_taken_over,
                    a_takeover_is_told_as_such_when_asked_again,
                }
                "claim of a released key by the owner that released it, a late copy: refused, and nothing changes" {
                    a_late_copy_of_a_claim_does_not_revive_what_its_owner_released,
                }
                "claim of a released and due key: in flight, a new fence, one attempt more, Granted" {
                    a_released_key_is_granted_to_another,
                    a_new_attempt_brings_its_own_policy_and_lifetime,
                    a_release_clears_that_the_attempt_before_was_a_takeover,
                }
                "claim of a key in flight whose lease is over, policy rerun: a new fence, one attempt more, Granted and recovered" {
                    a_lapsed_lease_is_taken_over, a_takeover_keeps_when_its_generation_began,
                    a_takeover_can_be_taken_over, a_lease_ends_at_its_last_microsecond_and_not_before,
                }
                "a claim that was taken over is nobody's but the successor's" {
                    an_owner_that_was_taken_over_is_not_granted_again,
                }
                "an acknowledged step is seen by every later step of any client" {
                    every_handle_sees_what_another_did,
                }
            }
            crash {
                "claim of a key in flight whose lease is over, policy in_doubt of the record or of the claimant: InDoubt" {
                    a_lapsed_lease_recorded_in_doubt_is_never_taken_over,
                    a_lapsed_lease_is_in_doubt_if_only_the_claimant_says_so,
                    the_in_doubt_policy_of_a_later_attempt_counts, in_doubt_goes_before_exhausted,
                }
                "a running lease is Busy under any policy" {
                    a_running_lease_under_in_doubt_is_busy,
                }
                "claim of a key in doubt: InDoubt for everybody" {
                    a_key_in_doubt_tells_every_claimant, a_key_in_doubt_keeps_who_had_it,
                }
                "what is in doubt, or in flight under that policy, never expires" {
                    a_key_in_doubt_never_expires, a_lapsed_lease_under_in_doubt_never_expires,
                    a_renewed_lease_under_in_doubt_never_expires,
                }
                "a lapsed claim is its owner's until another's claim finds it" {
                    a_lapsed_lease_under_in_doubt_is_its_owners_until_somebody_asks,
                }
                "renew, record_step, complete and release of a key in doubt by its owner and fence: as in flight, and HeldInDoubt" {
                    the_worker_in_doubt_goes_on_and_its_result_counts,
                    the_steps_of_the_worker_in_doubt_are_recorded,
                    a_doubt_whose_worker_is_alive_is_busy_to_who_settles_it,
                    what_the_worker_in_doubt_says_when_it_gives_up_counts,
                }
            }
            attempts {
                "claim of a released key, or one whose lease is over, without attempts left: Failed, Exhausted" {
                    a_key_is_granted_as_often_as_its_limit_says, a_lapsed_last_attempt_exhausts_the_key,
                    a_key_is_exhausted_whether_or_not_it_is_due, the_limit_is_the_claimants,
                    crashes_and_failures_count_alike,
                }
                "the same by who recovers, of a run that did not end: in flight, Granted to recover only, and no attempt more" {
                    past_the_limit_who_recovers_is_granted_to_recover_only,
                    a_grant_past_the_limit_counts_no_attempt,
                }
                "a last attempt that runs is Busy to others and Granted to its owner" {
                    a_running_last_attempt_is_busy, the_owner_of_the_last_attempt_is_granted_it_again,
                }
                "an exhausted key is a terminal failure that belongs to nobody" {
                    exhausted_is_told_to_everybody, an_exhausted_key_is_recorded_as_failed_by_nobody,
                    the_last_owner_comes_too_late_once_the_key_is_exhausted,
                    an_exhausted_key_is_kept_for_the_claimants_lifetime,
                }
                "claim of a released key that is not due: RetryAt, with the time left" {
                    a_key_that_is_not_due_is_refused_until_it_is,
                    a_key_that_is_not_due_is_refused_to_who_released_it,
                }
            }
            replay {
                "claim of a completed or failed key: Replay of its result" {
                    a_value_is_replayed, a_terminal_error_is_replayed,
                    each_tombstone_is_replayed_as_what_it_is,
                    a_replay_is_given_whatever_the_claimant_asks_for,
                    a_result_of_a_takeover_is_replayed_to_the_one_taken_over,
                }
                "every replay of a generation is the same, and tells who made it and when" {
                    a_replay_tells_when_the_result_was_recorded,
                    every_replay_is_the_same_and_changes_nothing,
                    a_replay_tells_which_attempt_made_the_result,
                }
            }
            fingerprints {
                "claim of a live record with another fingerprint: Mismatch, and nothing changes" {
                    another_fingerprint_is_a_mismatch_in_every_state, a_mismatch_changes_nothing,
                    the_owner_itself_is_refused_with_another_fingerprint,
                    a_mismatch_leaves_the_owner_its_claim,
                }
                "only another fingerprint is a mismatch: not the same, and not none" {
                    the_same_fingerprint_is_no_mismatch_in_any_state,
                    a_claim_without_a_fingerprint_matches_any,
                    any_fingerprint_matches_a_record_without_one,
                }
                "a fingerprint is recorded with a grant, kept by later attempts, and gone with its record" {
                    an_attempt_without_a_fingerprint_keeps_the_recorded_one,
                    an_attempt_with_the_first_fingerprint_records_it,
                    asking_in_vain_records_no_fingerprint, a_fingerprint_lives_as_long_as_its_record,
                    a_new_generation_does_not_inherit_a_fingerprint,
                }
                "a fingerprint is its 32 bytes, whatever they are" {
                    fingerprints_that_differ_in_one_bit_are_different,
                    fingerprints_of_odd_bytes_are_kept_as_they_are,
                }
            }
            renew {
                "renew of a claim in flight by its owner and fence: the lease runs from now, Held" {
                    an_owner_keeps_its_lease, a_lease_is_renewed_from_now_and_not_from_its_end,
                    a_renewal_may_shorten_a_lease, a_lapsed_lease_is_renewed_if_nobody_took_over,
                    a_renewal_changes_the_lease_alone, a_renewal_pushes_the_expiry,
                    a_takeovers_lease_can_be_renewed,
                }
                "renew in any other case: Lost, and nothing changes" {
                    a_renewal_is_lost_in_every_other_state, nobody_renews_anothers_lease,
                    nobody_renews_under_another_fence, a_renewal_of_an_absent_key_is_lost_and_makes_none,
                }
            }
            complete {
                "complete of a claim in flight by its owner and fence, even if the lease is over: recorded, Done" {
                    an_owner_records_its_result, a_result_is_taken_even_if_the_lease_is_over,
                    a_takeover_records_its_result,
                }
                "complete of what this owner and fence completed already: Done, and nothing changes" {
                    a_result_recorded_twice_is_the_first,
                }
                "complete in any other case: Lost, and nothing changes" {
                    a_slow_owner_cannot_overwrite_its_successors_result,
                    a_result_that_comes_too_late_is_lost_and_changes_nothing,
                    nobody_completes_anothers_claim, nobody_completes_under_another_fence,
                    an_owner_does_not_complete_a_later_attempt_of_its_own,
                    completing_an_absent_key_is_lost_and_makes_none,
                }
                "a result is kept from its completion, for the lifetime said there" {
                    a_result_is_kept_from_completion_for_its_own_lifetime,
                    a_result_under_in_doubt_expires_like_any,
                }
                "a recorded result cannot be given up" {
                    a_completed_claim_cannot_be_released,
                }
            }
            release {
                "release of a claim in flight by its owner and fence: Released, and attempt and fence survive" {
                    an_owner_gives_its_claim_up, a_release_keeps_what_must_survive,
                    a_claim_that_failed_under_in_doubt_is_released, a_lapsed_claim_can_still_be_given_up,
                    a_release_under_a_later_policy_goes_by_that,
                }
                "release of a claim abandoned: as a lapsed lease, and under the in_doubt policy InDoubt" {
                    an_abandoned_claim_is_as_one_whose_lease_lapsed,
                    a_claim_abandoned_under_in_doubt_is_in_doubt,
                }
                "release of a claim whose body was not started: as before the grant, but for the fence" {
                    a_claim_given_back_unused_counts_no_attempt, a_claim_given_back_unused_is_its_owners_no_more,
                    a_claim_given_back_unused_is_not_in_doubt,
                    a_takeover_given_back_unused_leaves_a_lapsed_lease,
                    a_takeover_given_back_unused_is_its_owners_no_more,
                    a_takeover_that_finds_that_nothing_happened_leaves_nothing_to_recover,
                    a_first_claim_given_back_unused_leaves_no_fingerprint,
                }
                "release of what this owner and fence released already: the same answer, and nothing changes" {
                    a_release_asked_again_is_answered_the_same,
                }
                "release in any other case: Lost, and nothing changes" {
                    a_release_that_comes_too_late_is_lost_and_changes_nothing,
                    a_release_does_not_free_the_next_owners_claim, nobody_releases_anothers_claim,
                    nobody_releases_under_another_fence, releasing_an_absent_key_is_lost_and_makes_none,
                }
                "a released record is kept for its lifetime from when it is due" {
                    a_released_record_is_kept_from_when_it_is_due,
                    a_record_that_is_not_due_is_not_forgotten_first,
                }
            }
            steps {
                "record_step of a claim in flight by its owner and fence, at the next position, even if the lease is over: Recorded" {
                    steps_are_recorded_in_their_order, a_step_changes_nothing_but_the_steps,
                    a_step_is_taken_even_if_the_lease_is_over, a_step_is_all_that_it_was,
                    a_thousand_steps_are_kept, large_steps_are_kept, keys_do_not_share_steps,
                }
                "record_step of this very step at its position: Recorded, and nothing changes" {
                    a_step_asked_again_is_recorded_once, a_lost_step_is_found_recorded,
                }
                "record_step in any other case: Lost, and nothing changes" {
                    another_step_at_a_position_that_is_taken_is_lost, a_step_beyond_the_next_position_is_lost,
                    a_step_that_comes_too_late_is_lost_and_changes_nothing,
                    nobody_records_a_step_of_anothers_claim, nobody_is_told_of_anothers_step,
                    a_step_for_an_absent_key_is_lost_and_makes_none,
                    a_slow_owner_records_nothing_for_its_successor, a_late_copy_of_a_step_is_not_the_next_one,
                }
                "a step over the limit is TooLarge, nothing is applied, and its tombstone is taken" {
                    a_step_over_the_limit_is_refused_and_nothing_applied,
                }
                "steps outlive a renewal, a release, a doubt, a takeover and attempts that ran out" {
                    a_takeover_has_the_steps_of_who_was_taken_over,
                    steps_outlive_a_release_and_a_new_fingerprint, steps_outlive_a_renewal,
                    steps_outlive_a_doubt_and_an_operators_release, a_refused_claim_leaves_the_steps,
                    steps_are_kept_as_long_as_their_record, steps_outlive_attempts_that_ran_out,
                }
                "a record with a result has no steps, and a new generation none of the one before" {
                    a_result_takes_the_place_of_the_steps, a_resolved_key_has_no_steps,
                    a_new_generation_knows_no_step_of_the_one_before,
                }
            }
            doubt {
                "claim, by who settles doubts, of a key in doubt or about to be: a new fence, one attempt more, Granted and recovered" {
                    a_key_in_doubt_is_granted_to_who_settles_it,
                    a_lapsed_lease_is_granted_to_who_settles_doubts,
                    the_steps_are_there_for_who_settles_a_doubt,
                }
                "settling a doubt changes no other answer" {
                    a_running_lease_is_busy_to_who_settles_doubts, settling_changes_no_other_answer,
                    a_doubt_under_other_arguments_is_a_mismatch, past_the_limit_a_doubt_is_granted_to_recover_only,
                    an_owner_does_not_settle_its_own_doubt, who_does_not_settle_finds_the_doubt,
                    a_settled_doubt_given_back_unused_is_one_for_ever,
                }
                "release of a doubtful claim: InDoubt under any policy, for an operator or who settles it" {
                    a_doubtful_claim_is_in_doubt_under_any_policy, a_lapsed_claim_can_still_be_doubtful,
                    a_doubtful_key_never_expires, a_doubtful_release_that_comes_too_late_changes_nothing,
                }
            }
            resolve {
                "resolve of a key in doubt: completed, failed or released, as the operator says" {
                    an_operator_records_a_result, an_operator_records_that_there_is_no_result,
                    an_operator_lets_a_key_be_tried_again, a_resolved_record_belongs_to_nobody_and_expires,
                    a_resolution_keeps_what_must_survive,
                }
                "a worker in doubt comes too late after the operator's word" {
                    the_worker_in_doubt_comes_too_late_after_the_operators_word,
                }
                "resolve of a key that is not in doubt tells so, and nothing changes" {
                    only_a_key_in_doubt_can_be_resolved, an_absent_key_cannot_be_resolved,
                    a_word_given_twice_finds_the_first,
                    a_lapsed_lease_is_in_doubt_only_once_somebody_asked,
                }
                "a word on what was seen counts only while the record is as it was seen" {
                    a_word_on_what_was_seen_resolves_it, a_word_on_what_has_changed_changes_nothing,
                    what_was_seen_is_forgotten_in_any_state,
                }
            }
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
