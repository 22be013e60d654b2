//! The list of all checks, by theme, each with the rule that it checks.

mod storage;

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

/// Passes the list of all checks to another macro: those of the protocol, and then those of storage.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_checks {
    ([$($callback:tt)*] ($($arguments:tt)*)) => {
        $crate::__conformance_checks_of_storage! {
            [$($callback)*] ($($arguments)*)
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
        }
    };
}
