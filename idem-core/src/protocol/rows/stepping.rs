//! Rows of `record_step`, what becomes of steps, and claims that settle a doubt.

use super::*;

fn step(name: &str, result: &'static str) -> RecordedStep {
    RecordedStep { name: name.to_owned(), input: Some(BLUE), result: value(result) }
}

fn recording(position: u32, step: RecordedStep) -> RecordStep {
    RecordStep { owner: ALICE, fence: Fence::new(77), position, step }
}

fn two_steps() -> Vec<RecordedStep> {
    vec![step("reserve", "r-1"), step("charge", "c-1")]
}

/// The record of [`record_in`], with the two steps if a record in that state can have steps.
fn stepped(state: State) -> Record {
    let record = record_in(state);
    let steps = if record.result.is_some() { Vec::new() } else { two_steps() };
    Record { steps, ..record }
}

fn settling(owner: Owner) -> Claim {
    Claim { on_crash: OnCrash::InDoubt, recovers: true, ..claim_of(owner) }
}

#[test]
fn the_holder_records_steps_in_order_even_if_the_lease_is_over() {
    for now in [START, LEASE_OVER, LEASE_OVER + TTL - 1] {
        for first in [in_flight(), cautious(), record_in(State::InDoubt)] {
            let mut record = first.clone();
            for (position, recorded) in (0..).zip(two_steps()) {
                let done = record_step(Some(&record), &recording(position, recorded), at(now));
                assert_eq!(done.answer, RecordStepAnswer::Recorded);
                record = written(done);
            }
            assert_eq!(record, Record { steps: two_steps(), ..first }, "nothing else is touched");
        }
    }
}

#[test]
fn a_step_asked_again_is_recorded_once() {
    let record = stepped(State::InFlight);
    for (position, recorded) in (0..).zip(two_steps()) {
        let again = record_step(Some(&record), &recording(position, recorded), at(START));
        assert_kept(&again, RecordStepAnswer::Recorded);
    }
}

#[test]
fn another_step_at_a_position_that_is_taken_is_lost() {
    let record = stepped(State::InFlight);
    let there = step("charge", "c-1");
    let others = [
        step("reserve", "r-1"),
        RecordedStep { name: "refund".into(), ..there.clone() },
        RecordedStep { input: None, ..there.clone() },
        RecordedStep { input: Some(RED), ..there.clone() },
        RecordedStep { result: value("c-2"), ..there.clone() },
        RecordedStep { result: StoredResult::Tombstone(Tombstone::TooLarge), ..there },
    ];
    for other in others {
        let answer = record_step(Some(&record), &recording(1, other), at(START));
        assert_kept(&answer, RecordStepAnswer::Lost);
    }
}

#[test]
fn a_step_beyond_the_next_position_is_lost() {
    for position in [3, 4, u32::MAX] {
        let answer = record_step(
            Some(&stepped(State::InFlight)),
            &recording(position, step("ship", "s-1")),
            at(START),
        );
        assert_kept(&answer, RecordStepAnswer::Lost);
    }
}

#[test]
fn nobody_but_the_holder_records_a_step() {
    let record = stepped(State::InFlight);
    let fence = Fence::new(77);
    for (owner, fence) in
        [(BOB, fence), (ALICE, Fence::new(76)), (ALICE, Fence::new(78)), (Owner::NOBODY, fence)]
    {
        for position in 0..=2 {
            let step = two_steps().get(position as usize).cloned().unwrap_or(step("ship", "s-1"));
            let request = RecordStep { owner, fence, ..recording(position, step) };
            assert_kept(&record_step(Some(&record), &request, at(START)), RecordStepAnswer::Lost);
        }
    }
}

#[test]
fn only_a_claim_in_flight_or_in_doubt_takes_a_step() {
    for state in [State::Completed, State::Failed, State::Released] {
        let record = stepped(state);
        for (position, recorded) in (0..).zip([step("reserve", "r-1"), step("a", "b"), step("ship", "s-1")]) {
            let answer = record_step(Some(&record), &recording(position, recorded), at(START));
            assert_kept(&answer, RecordStepAnswer::Lost);
        }
    }
    let expired = stepped(State::InFlight);
    for record in [None, Some(&expired)] {
        let answer = record_step(record, &recording(0, step("reserve", "r-1")), expired.expires_at.unwrap());
        assert_kept(&answer, RecordStepAnswer::Lost);
    }
}

#[test]
fn steps_outlive_a_renewal_a_release_a_doubt_a_takeover_and_attempts_that_ran_out() {
    let record = stepped(State::InFlight);
    let careful = Record { steps: two_steps(), ..cautious() };
    let mut after = vec![
        written(renew(Some(&record), &renewal(), at(LEASE_OVER))),
        written(claim(Some(&record), NO_FLOOR, &claim_of(BOB), at(LEASE_OVER))),
        written(claim(Some(&careful), NO_FLOOR, &claim_of(BOB), at(LEASE_OVER))),
        written(claim(Some(&careful), NO_FLOOR, &settling(BOB), at(LEASE_OVER))),
        written(claim(Some(&stepped(State::Released)), NO_FLOOR, &claim_of(BOB), at(LEASE_OVER))),
        written(claim(Some(&stepped(State::InDoubt)), NO_FLOOR, &settling(BOB), at(LEASE_OVER))),
        written(resolve(Some(&stepped(State::InDoubt)), &Resolution::Release, at(START))),
        written(claim(Some(&record), NO_FLOOR, &at_most(1, BOB), at(LEASE_OVER))),
        written(claim(Some(&stepped(State::Released)), NO_FLOOR, &at_most(1, BOB), at(LEASE_OVER))),
    ];
    for cause in CAUSES {
        for record in [&record, &careful, &Record { recovered: true, ..record.clone() }] {
            after.push(written(release(Some(record), &giving_up(cause), at(START))));
        }
    }
    for record in after {
        assert_eq!(record.steps, two_steps(), "{record:?}");
    }
}

#[test]
fn a_record_with_a_result_has_no_steps_any_more() {
    let doubt = stepped(State::InDoubt);
    let verdict = Resolution::Record(Verdict::Completed, value("seen"));
    for record in [
        written(complete(Some(&stepped(State::InFlight)), &completion(value("receipt")), at(START))),
        written(resolve(Some(&doubt), &verdict, at(START))),
    ] {
        assert!(record.result.is_some() && record.steps.is_empty(), "{record:?}");
    }
}

#[test]
fn a_claimant_that_settles_doubts_is_granted_what_is_in_doubt_or_about_to_be() {
    let at_last = at(LEASE_OVER + 50_000);
    for record in [record_in(State::InDoubt), cautious(), in_flight()] {
        let step = claim(Some(&record), NO_FLOOR, &settling(BOB), at_last.min(at(LEASE_OVER + TTL - 1)));
        let grant = granted(&step);
        assert_eq!((grant.attempt, grant.recovered), (record.attempt + 1, true));
        assert!(grant.fence > record.fence);
        let new = written(step);
        assert_eq!((new.state, new.owner, new.on_crash), (State::InFlight, BOB, OnCrash::InDoubt));
    }
    let forever = claim(Some(&record_in(State::InDoubt)), NO_FLOOR, &settling(BOB), at_last);
    assert!(granted(&forever).recovered, "a doubt never expires");
}

#[test]
fn a_doubt_is_not_settled_under_the_policy_that_reruns() {
    let rerun = Claim { on_crash: OnCrash::Rerun, ..settling(BOB) };
    let doubt = claim(Some(&record_in(State::InDoubt)), NO_FLOOR, &rerun, at(LEASE_OVER));
    assert_kept(&doubt, ClaimAnswer::InDoubt);
    let lapsed = claim(Some(&cautious()), NO_FLOOR, &rerun, at(LEASE_OVER));
    assert_eq!(lapsed.answer, ClaimAnswer::InDoubt);
}

#[test]
fn a_settled_doubt_that_was_not_used_is_a_doubt_to_the_next() {
    let held = written(claim(Some(&record_in(State::InDoubt)), NO_FLOOR, &settling(BOB), at(LEASE_OVER)));
    let unused = Release { owner: BOB, fence: held.fence, ..giving_up(ReleaseCause::Unused) };
    let given_back = written(release(Some(&held), &unused, at(LEASE_OVER)));
    // It is visible as a doubt, and never expires.
    assert_eq!((given_back.state, given_back.expires_at), (State::InDoubt, None));
    for later in [at(LEASE_OVER + 50), at(LEASE_OVER + TTL), at(u64::MAX)] {
        assert_kept(&claim(Some(&given_back), NO_FLOOR, &claim_of(ALICE), later), ClaimAnswer::InDoubt);
        let step = claim(Some(&given_back), NO_FLOOR, &settling(ALICE), later);
        assert_eq!((granted(&step).attempt, granted(&step).recovered), (held.attempt, true));
        assert!(granted(&step).fence > held.fence);
    }
}

#[test]
fn who_gave_a_settled_doubt_back_has_nothing_more_to_say_of_it() {
    let held = written(claim(Some(&record_in(State::InDoubt)), NO_FLOOR, &settling(BOB), at(LEASE_OVER)));
    let (owner, fence, now) = (BOB, held.fence, at(LEASE_OVER));
    let unused = Release { owner, fence, ..giving_up(ReleaseCause::Unused) };
    let given_back = written(release(Some(&held), &unused, now));
    assert_kept(&claim(Some(&given_back), NO_FLOOR, &settling(BOB), now), ClaimAnswer::InDoubt);
    let late = Complete { owner, fence, ..completion(value("late")) };
    assert_kept(&complete(Some(&given_back), &late, now), CompleteAnswer::Lost);
    assert_kept(&renew(Some(&given_back), &Renew { owner, fence, ..renewal() }, now), RenewAnswer::Lost);
    for cause in CAUSES {
        assert_kept(&release(Some(&given_back), &Release { cause, ..unused }, now), ReleaseAnswer::Lost);
    }
}

#[test]
fn a_settled_doubt_about_which_nothing_was_found_out_is_one_again_and_counts_no_attempt() {
    let held = written(claim(Some(&record_in(State::InDoubt)), NO_FLOOR, &settling(BOB), at(LEASE_OVER)));
    let doubtful = Release { owner: BOB, fence: held.fence, ..giving_up(ReleaseCause::Doubtful) };
    let doubt = written(release(Some(&held), &doubtful, at(LEASE_OVER)));
    assert_eq!((doubt.state, doubt.attempt), (State::InDoubt, held.attempt - 1));
    // No later release of the same owner is counted again.
    for cause in CAUSES {
        let more = Release { cause, ..doubtful };
        assert_kept(&release(Some(&doubt), &more, at(LEASE_OVER)), ReleaseAnswer::Lost);
    }
}

#[test]
fn a_claimant_that_settles_doubts_takes_no_running_lease() {
    for record in [in_flight(), cautious()] {
        let step = claim(Some(&record), NO_FLOOR, &settling(BOB), at(LEASE_OVER - 1));
        assert_kept(&step, ClaimAnswer::Busy { retry_after: micros(1) });
    }
}

#[test]
fn a_doubt_is_not_settled_by_other_arguments_nor_by_its_own_owner() {
    let doubt = record_in(State::InDoubt);
    let other = Claim { fingerprint: Some(BLUE), ..settling(BOB) };
    let now = at(LEASE_OVER);
    assert_kept(&claim(Some(&doubt), NO_FLOOR, &other, now), ClaimAnswer::Mismatch);
    assert_kept(&claim(Some(&cautious()), NO_FLOOR, &other, now), ClaimAnswer::Mismatch);
    assert_kept(&claim(Some(&doubt), NO_FLOOR, &settling(ALICE), now), ClaimAnswer::InDoubt);
}

#[test]
fn a_claim_doubtful_is_in_doubt_whatever_its_policy_and_stays_so_when_asked_again() {
    let request = giving_up(ReleaseCause::Doubtful);
    for record in [in_flight(), cautious()] {
        let step = release(Some(&record), &request, at(START));
        assert_eq!(step.answer, ReleaseAnswer::InDoubt);
        let doubt = written(step);
        assert_eq!(
            doubt,
            Record { state: State::InDoubt, lease_until: at(START), expires_at: None, ..record }
        );
        assert_kept(&release(Some(&doubt), &request, at(LEASE_OVER)), ReleaseAnswer::InDoubt);
        assert_kept(&claim(Some(&doubt), NO_FLOOR, &claim_of(BOB), at(9 * LEASE_OVER)), ClaimAnswer::InDoubt);
    }
}
