//! Rows of `claim` that grant.

use super::*;

#[test]
fn an_absent_key_is_granted_and_the_whole_record_written() {
    let step = claim(None, NO_FLOOR, &claim_of(BOB), at(START));
    let lease_left = micros(LEASE);
    assert_eq!(granted(&step), Grant::new(Fence::new(START), 1, false, lease_left));
    assert_eq!(
        written(step),
        Record {
            state: State::InFlight,
            owner: BOB,
            fence: Fence::new(START),
            attempt: 1,
            recovered: false,
            on_crash: OnCrash::Rerun,
            lease_until: at(LEASE_OVER),
            retry_at: at(START),
            ttl: micros(TTL),
            fingerprint: Some(RED),
            result: None,
            steps: Vec::new(),
            created_at: at(START),
            completed_at: None,
            expires_at: Some(at(LEASE_OVER + TTL)),
        }
    );
}

#[test]
fn a_claim_under_in_doubt_is_never_forgotten() {
    let request = Claim { on_crash: OnCrash::InDoubt, ..claim_of(BOB) };
    let record = written(claim(None, NO_FLOOR, &request, at(START)));
    assert_eq!((record.on_crash, record.expires_at), (OnCrash::InDoubt, None));
    assert!(is_live(&record, at(u64::MAX)));
}

#[test]
fn a_record_is_absent_from_the_microsecond_at_which_it_expires() {
    for state in [State::InFlight, State::Completed, State::Failed, State::Released] {
        let record = record_in(state);
        let end = record.expires_at.unwrap().as_micros();
        assert!(is_live(&record, at(end - 1)));
        assert!(!is_live(&record, at(end)));

        // Another fingerprint and one attempt at most: only an absent record lets this through. It is absent
        // to its own owner too.
        for owner in [ALICE, BOB] {
            let request = Claim { fingerprint: Some(BLUE), ..at_most(1, owner) };
            let before = claim(Some(&record), NO_FLOOR, &request, at(end - 1));
            assert_kept(&before, ClaimAnswer::Mismatch);
            let step = claim(Some(&record), NO_FLOOR, &request, at(end));
            let grant = granted(&step);
            assert_eq!((grant.attempt, grant.recovered), (1, false), "{state:?}");
            assert!(grant.fence > record.fence);
            let new = written(step);
            assert_eq!((new.fingerprint, new.created_at, new.result), (Some(BLUE), at(end), None));
        }
    }
}

#[test]
fn a_new_fence_is_one_more_where_the_clock_is_not_ahead() {
    for fence in [START, START + 5_000] {
        let record = Record { fence: Fence::new(fence), ..record_in(State::Released) };
        let step = claim(Some(&record), NO_FLOOR, &claim_of(BOB), at(START));
        assert_eq!(granted(&step).fence, Fence::new(fence + 1));
    }
}

#[test]
fn a_new_fence_exceeds_the_one_of_an_expired_record() {
    let record = Record { fence: Fence::new(900_000), ..record_in(State::Completed) };
    let step = claim(Some(&record), NO_FLOOR, &claim_of(BOB), record.expires_at.unwrap());
    assert_eq!(granted(&step).fence, Fence::new(900_001));
}

#[test]
fn a_new_fence_exceeds_the_floor_with_a_record_and_without() {
    let floor = Fence::new(900_000);
    let request = claim_of(BOB);
    assert_eq!(granted(&claim(None, floor, &request, at(START))).fence, Fence::new(900_001));
    for (state, now) in
        [(State::Released, START), (State::InFlight, LEASE_OVER), (State::Completed, START + TTL)]
    {
        let step = claim(Some(&record_in(state)), floor, &request, at(now));
        assert_eq!(granted(&step).fence, Fence::new(900_001), "{state:?}");
    }
}

#[test]
fn a_lost_answer_is_given_again_with_the_same_fence() {
    let record = Record { recovered: true, ..in_flight() };
    let step = claim(Some(&record), Fence::new(900_000), &claim_of(ALICE), at(START + 30));
    let lease_left = micros(LEASE - 30);
    let same = Grant::new(Fence::new(77), 2, true, lease_left);
    assert_kept(&step, ClaimAnswer::Granted(same));
}

#[test]
fn a_lost_answer_is_given_again_after_the_lease_under_in_doubt_and_on_the_last_attempt() {
    let request = Claim { on_crash: OnCrash::InDoubt, ..at_most(2, ALICE) };
    for record in [cautious(), in_flight()] {
        let step = claim(Some(&record), NO_FLOOR, &request, at(LEASE_OVER));
        let grant = granted(&step);
        assert_eq!((grant.fence, grant.attempt, grant.lease_left), (Fence::new(77), 2, micros(0)));
        assert_eq!(step.write, None);
    }
}

#[test]
fn a_released_key_is_granted_from_the_microsecond_at_which_it_is_due() {
    let record = Record { retry_at: at(START + 50), ..record_in(State::Released) };
    let step = claim(Some(&record), NO_FLOOR, &claim_of(BOB), at(START + 50));
    let grant = granted(&step);
    assert_eq!((grant.attempt, grant.recovered, grant.lease_left), (3, false, micros(LEASE)));
    let new = written(step);
    assert_eq!(new.state, State::InFlight);
    assert_eq!((new.owner, new.fence, new.attempt), (BOB, grant.fence, 3));
    assert_eq!(new.created_at, record.created_at, "it is the same generation");
    assert_eq!(new.expires_at, Some(at(START + 50 + LEASE + TTL)));
}

#[test]
fn a_released_key_may_run_again_under_in_doubt_too() {
    let record = Record { on_crash: OnCrash::InDoubt, ..record_in(State::Released) };
    let request = Claim { on_crash: OnCrash::InDoubt, ..claim_of(BOB) };
    assert_eq!(granted(&claim(Some(&record), NO_FLOOR, &request, at(START))).attempt, 3);
}

#[test]
fn a_lapsed_lease_is_taken_over_from_the_microsecond_at_which_it_ends() {
    let record = in_flight();
    let step = claim(Some(&record), NO_FLOOR, &claim_of(BOB), at(LEASE_OVER));
    let grant = granted(&step);
    assert_eq!((grant.fence, grant.attempt, grant.recovered), (Fence::new(LEASE_OVER), 3, true));
    let new = written(step);
    assert_eq!((new.owner, new.attempt, new.recovered), (BOB, 3, true));
    assert_eq!(new.created_at, record.created_at);
    assert_eq!(new.lease_until, at(LEASE_OVER + LEASE));
}

#[test]
fn an_abandoned_run_is_taken_over_as_a_lapsed_lease_is() {
    let abandoned = Record { recovered: true, ..record_in(State::Released) };
    let step = claim(Some(&abandoned), NO_FLOOR, &claim_of(BOB), at(START));
    assert_eq!((granted(&step).attempt, granted(&step).recovered), (3, true));
    assert!(written(step).recovered);

    let careful = Claim { on_crash: OnCrash::InDoubt, ..claim_of(BOB) };
    let step = claim(Some(&abandoned), NO_FLOOR, &careful, at(START));
    assert_eq!(step.answer, ClaimAnswer::InDoubt);
    let doubt = written(step);
    assert_eq!((doubt.state, doubt.lease_until, doubt.expires_at), (State::InDoubt, at(START), None));
}

#[test]
fn past_the_limit_a_claimant_that_recovers_is_granted_to_recover_only() {
    let abandoned = Record { recovered: true, ..record_in(State::Released) };
    let careful = |claim: Claim| Claim { on_crash: OnCrash::InDoubt, ..claim };
    let two = Claim { recovers: true, ..at_most(2, BOB) };
    for (record, request) in [
        (in_flight(), two.clone()),
        (abandoned, two.clone()),
        (in_flight(), careful(two.clone())),
        (cautious(), careful(two.clone())),
        (record_in(State::InDoubt), careful(two.clone())),
    ] {
        let step = claim(Some(&record), NO_FLOOR, &request, at(LEASE_OVER));
        let grant = granted(&step);
        assert_eq!((grant.attempt, grant.recovered, grant.recover_only), (3, true, true));
        let held = written(step);
        // The same claim gets the same grant again. If the recovering worker crashes too, the next claimant gets an
        // equal grant.
        let again = claim(Some(&held), NO_FLOOR, &request, at(LEASE_OVER));
        assert_kept(&again, ClaimAnswer::Granted(grant));
        let next = Claim { owner: ALICE, ..request };
        let step = claim(Some(&held), NO_FLOOR, &next, at(LEASE_OVER + LEASE));
        assert_eq!((granted(&step).attempt, granted(&step).recover_only), (3, true), "none is counted");
    }
    let three = Claim { recovers: true, ..at_most(3, BOB) };
    assert!(!granted(&claim(Some(&in_flight()), NO_FLOOR, &three, at(LEASE_OVER))).recover_only);
    // A failed attempt reported its outcome, so there is nothing to recover.
    let step = claim(Some(&record_in(State::Released)), NO_FLOOR, &two, at(LEASE_OVER));
    assert_eq!(step.answer, ClaimAnswer::Exhausted { attempts: 2 });
}

#[test]
fn a_recovery_past_the_limit_that_finds_nothing_leaves_an_exhausted_key() {
    let two = Claim { recovers: true, ..at_most(2, BOB) };
    let held = written(claim(Some(&in_flight()), NO_FLOOR, &two, at(LEASE_OVER)));
    let nothing = Release { owner: BOB, fence: held.fence, ..giving_up(ReleaseCause::NothingHappened) };
    let released = written(release(Some(&held), &nothing, at(LEASE_OVER)));
    assert_eq!((released.attempt, released.recovered), (2, false), "as many as there were bodies");
    let next = Claim { owner: ALICE, ..two };
    let step = claim(Some(&released), NO_FLOOR, &next, at(LEASE_OVER));
    assert_eq!(step.answer, ClaimAnswer::Exhausted { attempts: 2 });
}

#[test]
fn the_last_attempt_is_granted() {
    let due = record_in(State::Released);
    assert_eq!(granted(&claim(Some(&due), NO_FLOOR, &at_most(3, BOB), at(START))).attempt, 3);
    let step = claim(Some(&in_flight()), NO_FLOOR, &at_most(3, BOB), at(LEASE_OVER));
    assert_eq!(granted(&step).attempt, 3);
}

#[test]
fn a_grant_keeps_the_recorded_fingerprint_where_the_claimant_has_none() {
    let request = Claim { fingerprint: None, ..claim_of(BOB) };
    let new = written(claim(Some(&in_flight()), NO_FLOOR, &request, at(LEASE_OVER)));
    assert_eq!(new.fingerprint, Some(RED));
}

#[test]
fn a_grant_takes_on_a_fingerprint_where_none_was_recorded() {
    let record = Record { fingerprint: None, ..in_flight() };
    let new = written(claim(Some(&record), NO_FLOOR, &claim_of(BOB), at(LEASE_OVER)));
    assert_eq!(new.fingerprint, Some(RED));
}

#[test]
fn fences_attempts_and_instants_stop_at_their_last_value_instead_of_wrapping() {
    let record = Record {
        fence: Fence::new(u64::MAX),
        attempt: u32::MAX,
        expires_at: None,
        ..record_in(State::Released)
    };
    let request = Claim { lease: Duration::MAX, ttl: Duration::MAX, ..claim_of(BOB) };
    let step = claim(Some(&record), NO_FLOOR, &request, at(START));
    assert_eq!((granted(&step).fence, granted(&step).attempt), (Fence::new(u64::MAX), u32::MAX));
    let new = written(step);
    assert_eq!(new.lease_until, at(u64::MAX));
    assert_eq!(new.expires_at, Some(at(u64::MAX)));
    let last = claim(None, Fence::new(u64::MAX), &request, at(u64::MAX));
    assert_eq!(granted(&last).fence, Fence::new(u64::MAX));
}

#[test]
fn a_lease_shorter_than_a_microsecond_is_rounded_up() {
    let request = Claim { lease: Duration::from_nanos(1), ..claim_of(BOB) };
    let step = claim(None, NO_FLOOR, &request, at(START));
    assert_eq!(granted(&step).lease_left, micros(1));
}
