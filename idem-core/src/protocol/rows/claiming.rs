//! Rows of `claim` that refuse.

use super::*;

#[test]
fn another_fingerprint_is_a_mismatch_in_every_live_state() {
    for state in ALL_STATES {
        let record = record_in(state);
        // The owner gets this answer too, even if no attempts are left.
        for owner in [ALICE, BOB] {
            let request = Claim { fingerprint: Some(BLUE), ..at_most(1, owner) };
            for now in [START, LEASE_OVER] {
                let step = claim(Some(&record), NO_FLOOR, &request, at(now));
                assert_kept(&step, ClaimAnswer::Mismatch);
            }
        }
    }
}

#[test]
fn a_fingerprint_on_one_side_only_is_no_mismatch() {
    for (recorded, asked) in [(None, Some(RED)), (Some(RED), None), (None, None), (Some(RED), Some(RED))] {
        let record = Record { fingerprint: recorded, ..in_flight() };
        let request = Claim { fingerprint: asked, ..claim_of(BOB) };
        let step = claim(Some(&record), NO_FLOOR, &request, at(START));
        assert_kept(&step, ClaimAnswer::Busy { retry_after: micros(LEASE) });
    }
}

#[test]
fn a_running_lease_is_busy_to_its_last_microsecond() {
    for (now, left) in [(START, LEASE), (LEASE_OVER - 1, 1)] {
        // A running lease does not end because no attempts are left or because the claim has another crash policy.
        let request = Claim { on_crash: OnCrash::InDoubt, ..at_most(1, BOB) };
        let step = claim(Some(&in_flight()), NO_FLOOR, &request, at(now));
        assert_kept(&step, ClaimAnswer::Busy { retry_after: micros(left) });
        let step = claim(Some(&cautious()), NO_FLOOR, &claim_of(BOB), at(now));
        assert_kept(&step, ClaimAnswer::Busy { retry_after: micros(left) });
    }
}

#[test]
fn a_released_key_is_refused_until_it_is_due() {
    let failed = Record { retry_at: at(START + 50), ..record_in(State::Released) };
    let abandoned = Record { recovered: true, ..failed.clone() };
    for (owner, record) in [(ALICE, &failed), (BOB, &failed), (BOB, &abandoned)] {
        for (now, left) in [(START, 50), (START + 49, 1)] {
            let step = claim(Some(record), NO_FLOOR, &claim_of(owner), at(now));
            assert_kept(&step, ClaimAnswer::RetryAt { retry_after: micros(left) });
        }
    }
}

#[test]
fn a_lapsed_lease_is_in_doubt_if_either_policy_says_so() {
    let careful = Claim { on_crash: OnCrash::InDoubt, ..claim_of(BOB) };
    for (record, request) in [
        (cautious(), claim_of(BOB)),
        (in_flight(), careful.clone()),
        (cautious(), careful),
        // It is not called exhausted.
        (cautious(), at_most(1, BOB)),
    ] {
        let step = claim(Some(&record), NO_FLOOR, &request, at(LEASE_OVER));
        assert_eq!(step.answer, ClaimAnswer::InDoubt);
        let expected = Record { state: State::InDoubt, expires_at: None, ..record };
        assert_eq!(written(step), expected, "whose attempt it was stays on record");
    }
}

#[test]
fn a_key_in_doubt_stays_in_doubt_for_everybody_and_for_ever() {
    for request in [claim_of(ALICE), claim_of(BOB), at_most(1, BOB)] {
        for now in [START, u64::MAX] {
            let step = claim(Some(&record_in(State::InDoubt)), NO_FLOOR, &request, at(now));
            assert_kept(&step, ClaimAnswer::InDoubt);
        }
    }
}

#[test]
fn no_attempts_left_fails_a_released_key_and_a_lapsed_one() {
    let not_due = Record { retry_at: at(START + 50), ..record_in(State::Released) };
    let abandoned = Record { recovered: true, ..record_in(State::Released) };
    let lapsed = [(in_flight(), LEASE_OVER), (abandoned, START)];
    for (record, now) in [(record_in(State::Released), START), (not_due, START)].into_iter().chain(lapsed) {
        for most in [2, 1] {
            let step = claim(Some(&record), NO_FLOOR, &at_most(most, BOB), at(now));
            assert_eq!(step.answer, ClaimAnswer::Exhausted { attempts: 2 });
            let expected = Record {
                state: State::Failed,
                owner: Owner::NOBODY,
                result: Some(StoredResult::Tombstone(Tombstone::Exhausted)),
                completed_at: Some(at(now)),
                expires_at: Some(at(now + TTL)),
                ..record.clone()
            };
            assert_eq!(written(step), expected, "and its steps stay");
        }
    }
}

#[test]
fn a_late_copy_of_a_claim_does_not_revive_what_its_owner_released() {
    let failed = record_in(State::Released);
    for record in
        [failed.clone(), Record { recovered: true, ..failed.clone() }, Record { attempt: 0, ..failed }]
    {
        for policy in [OnCrash::Rerun, OnCrash::InDoubt] {
            let late = Claim { on_crash: policy, recovers: true, ..at_most(1, ALICE) };
            let step = claim(Some(&record), NO_FLOOR, &late, at(LEASE_OVER));
            assert_kept(&step, ClaimAnswer::RetryAt { retry_after: micros(0) });
        }
    }
}

#[test]
fn an_exhausted_key_is_kept_as_long_as_its_last_claimant_asked() {
    let request = Claim { ttl: micros(5), ..at_most(2, BOB) };
    let record = written(claim(Some(&in_flight()), NO_FLOOR, &request, at(LEASE_OVER)));
    assert_eq!((record.ttl, record.expires_at), (micros(5), Some(at(LEASE_OVER + 5))));
}

#[test]
fn an_exhausted_key_stays_exhausted_even_for_who_has_no_limit() {
    let failed = written(claim(Some(&in_flight()), NO_FLOOR, &at_most(2, BOB), at(LEASE_OVER)));
    for request in [claim_of(BOB), claim_of(ALICE), at_most(9, BOB)] {
        let step = claim(Some(&failed), NO_FLOOR, &request, at(LEASE_OVER));
        assert_kept(&step, ClaimAnswer::Exhausted { attempts: 2 });
    }
}

#[test]
fn a_recorded_result_is_replayed_to_everybody_until_it_expires() {
    for (state, verdict, bytes) in
        [(State::Completed, Verdict::Completed, "receipt"), (State::Failed, Verdict::Failed, "refused")]
    {
        let replay = Replay {
            verdict,
            result: value(bytes),
            attempt: 2,
            completed_at: at(START),
            expires_at: Some(at(START + TTL)),
        };
        for owner in [ALICE, BOB] {
            for now in [START, LEASE_OVER, START + TTL - 1] {
                let step = claim(Some(&record_in(state)), NO_FLOOR, &at_most(1, owner), at(now));
                assert_kept(&step, ClaimAnswer::Replay(replay.clone()));
            }
        }
    }
}

#[test]
fn a_terminal_record_that_lost_its_result_is_never_run_again() {
    let record = Record { result: None, ..record_in(State::Completed) };
    let step = claim(Some(&record), NO_FLOOR, &claim_of(BOB), at(START));
    assert_eq!(step.write, None);
    let ClaimAnswer::Replay(replay) = step.answer else { panic!("not replayed but {:?}", step.answer) };
    assert_eq!(replay.result, StoredResult::Tombstone(Tombstone::NotEncodable));
}
