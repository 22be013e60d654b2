//! Rows of `renew`, `complete` and `release`.

use super::*;

/// Pairs in which either the owner or the fence is not the holder's.
fn strangers() -> [(Owner, Fence); 4] {
    let fence = Fence::new(77);
    [(BOB, fence), (ALICE, Fence::new(76)), (ALICE, Fence::new(78)), (Owner::NOBODY, fence)]
}

fn verdicts() -> [(Verdict, State); 2] {
    [(Verdict::Completed, State::Completed), (Verdict::Failed, State::Failed)]
}

#[test]
fn the_holder_renews_and_the_lease_runs_from_now() {
    for now in [START, START + 40, LEASE_OVER, LEASE_OVER + TTL - 1] {
        let step = renew(Some(&in_flight()), &renewal(), at(now));
        assert_eq!(step.answer, RenewAnswer::Held);
        let expected =
            Record { lease_until: at(now + LEASE), expires_at: Some(at(now + LEASE + TTL)), ..in_flight() };
        assert_eq!(written(step), expected);
    }
}

#[test]
fn a_renewal_under_in_doubt_gives_the_record_no_end() {
    let step = renew(Some(&cautious()), &renewal(), at(LEASE_OVER));
    assert_eq!(written(step), Record { lease_until: at(LEASE_OVER + LEASE), ..cautious() });
}

#[test]
fn nobody_but_the_holder_renews_completes_or_releases() {
    for state in ALL_STATES {
        let record = record_in(state);
        for (owner, fence) in strangers() {
            let now = at(START);
            let renewed = renew(Some(&record), &Renew { owner, fence, ..renewal() }, now);
            assert_kept(&renewed, RenewAnswer::Lost);
            let request = Complete { owner, fence, ..completion(value("stolen")) };
            assert_kept(&complete(Some(&record), &request, now), CompleteAnswer::Lost);
            for cause in CAUSES {
                let request = Release { owner, fence, ..giving_up(cause) };
                assert_kept(&release(Some(&record), &request, now), ReleaseAnswer::Lost);
            }
        }
    }
}

#[test]
fn an_absent_record_is_lost_to_its_holder() {
    let expired = in_flight();
    let end = expired.expires_at.unwrap();
    for record in [None, Some(&expired)] {
        assert_kept(&renew(record, &renewal(), end), RenewAnswer::Lost);
        assert_kept(&complete(record, &completion(value("late")), end), CompleteAnswer::Lost);
        let released = release(record, &giving_up(ReleaseCause::Failed), end);
        assert_kept(&released, ReleaseAnswer::Lost);
    }
}

#[test]
fn the_worker_in_doubt_renews_and_stays_in_doubt() {
    for record in
        [record_in(State::InDoubt), Record { on_crash: OnCrash::Rerun, ..record_in(State::InDoubt) }]
    {
        let step = renew(Some(&record), &renewal(), at(LEASE_OVER));
        assert_eq!(step.answer, RenewAnswer::HeldInDoubt);
        let renewed = written(step);
        assert_eq!(renewed, Record { lease_until: at(LEASE_OVER + LEASE), ..record });
        // A claim that can settle the doubt waits while the worker is alive; every other claim gets `InDoubt`.
        let settling = Claim { on_crash: OnCrash::InDoubt, recovers: true, ..claim_of(BOB) };
        let busy = claim(Some(&renewed), NO_FLOOR, &settling, at(LEASE_OVER));
        assert_kept(&busy, ClaimAnswer::Busy { retry_after: micros(LEASE) });
        assert_kept(&claim(Some(&renewed), NO_FLOOR, &claim_of(BOB), at(LEASE_OVER)), ClaimAnswer::InDoubt);
        assert!(granted(&claim(Some(&renewed), NO_FLOOR, &settling, at(LEASE_OVER + LEASE))).recovered);
    }
}

#[test]
fn only_a_claim_in_flight_or_in_doubt_is_renewed() {
    for state in [State::Completed, State::Failed, State::Released] {
        assert_kept(&renew(Some(&record_in(state)), &renewal(), at(START)), RenewAnswer::Lost);
    }
}

#[test]
fn the_holder_completes_even_if_the_lease_is_over() {
    for (verdict, state) in verdicts() {
        for now in [START, LEASE_OVER, LEASE_OVER + TTL - 1] {
            for record in [in_flight(), cautious(), record_in(State::InDoubt)] {
                let request = Complete { verdict, ..completion(value("receipt")) };
                let step = complete(Some(&record), &request, at(now));
                assert_eq!(step.answer, CompleteAnswer::Done);
                let expected = Record {
                    state,
                    result: Some(value("receipt")),
                    completed_at: Some(at(now)),
                    expires_at: Some(at(now + TTL)),
                    ..record
                };
                assert_eq!(written(step), expected);
            }
        }
    }
}

#[test]
fn a_result_is_kept_as_long_as_its_completion_asked_counted_from_there() {
    let request = Complete { ttl: micros(7), ..completion(value("receipt")) };
    let record = written(complete(Some(&in_flight()), &request, at(LEASE_OVER)));
    assert_eq!((record.ttl, record.expires_at), (micros(7), Some(at(LEASE_OVER + 7))));
}

#[test]
fn a_completion_asked_again_is_done_and_changes_nothing() {
    for (verdict, state) in verdicts() {
        let request = Complete { verdict, ..completion(value("another")) };
        let step = complete(Some(&record_in(state)), &request, at(LEASE_OVER));
        assert_kept(&step, CompleteAnswer::Done);
    }
}

#[test]
fn what_was_released_cannot_be_completed_any_more() {
    let step = complete(Some(&record_in(State::Released)), &completion(value("late")), at(START));
    assert_kept(&step, CompleteAnswer::Lost);
}

#[test]
fn the_holder_releases_even_if_the_lease_is_over() {
    for (now, wait) in [(START, 0), (LEASE_OVER, 50)] {
        let request = Release { retry_after: micros(wait), ..giving_up(ReleaseCause::Failed) };
        let taken_over = Record { recovered: true, ..in_flight() };
        for record in [in_flight(), cautious(), taken_over, record_in(State::InDoubt)] {
            let step = release(Some(&record), &request, at(now));
            assert_eq!(step.answer, ReleaseAnswer::Released);
            let expected = Record {
                state: State::Released,
                recovered: false,
                retry_at: if wait == 0 { Timestamp::default() } else { at(now + wait) },
                expires_at: Some(at(now + wait + TTL)),
                ..record
            };
            assert_eq!(written(step), expected, "attempt and fence survive");
        }
    }
}

#[test]
fn a_key_that_is_released_at_once_is_due_even_if_the_clock_is_set_back() {
    let record = written(release(Some(&in_flight()), &giving_up(ReleaseCause::Failed), at(START)));
    assert_eq!(granted(&claim(Some(&record), NO_FLOOR, &claim_of(BOB), at(START - 40))).attempt, 3);
}

#[test]
fn a_grant_that_was_not_used_is_as_if_it_had_not_been() {
    let unused = giving_up(ReleaseCause::Unused);
    let fresh = Record { attempt: 1, ..in_flight() };
    let step = release(Some(&fresh), &unused, at(START));
    assert_eq!(step.answer, ReleaseAnswer::Released);
    let given_back = written(step);
    let claimed = claim(Some(&given_back), NO_FLOOR, &at_most(1, BOB), at(START));
    assert_eq!((granted(&claimed).attempt, granted(&claimed).recovered), (1, false));
    assert!(granted(&claimed).fence > fresh.fence);

    // The same under the policy that treats an abandoned claim as a crash.
    assert_eq!(written(release(Some(&cautious()), &unused, at(START))).state, State::Released);
}

#[test]
fn a_first_grant_that_was_not_used_leaves_no_fingerprint() {
    for cause in [ReleaseCause::Unused, ReleaseCause::NothingHappened] {
        let first = Record { attempt: 1, ..in_flight() };
        let given_back = written(release(Some(&first), &giving_up(cause), at(START)));
        assert_eq!((given_back.attempt, given_back.fingerprint), (0, None));
        let corrected = Claim { fingerprint: Some(BLUE), ..claim_of(BOB) };
        assert_eq!(granted(&claim(Some(&given_back), NO_FLOOR, &corrected, at(START))).attempt, 1);
        // A later attempt keeps the fingerprint, because a body ran with those arguments.
        let second = written(release(Some(&in_flight()), &giving_up(cause), at(START)));
        assert_eq!((second.attempt, second.fingerprint), (1, Some(RED)));
    }
}

#[test]
fn a_takeover_that_was_not_used_leaves_the_lapsed_lease_to_the_next() {
    let takeover = Record { recovered: true, ..in_flight() };
    let given_back = written(release(Some(&takeover), &giving_up(ReleaseCause::Unused), at(START)));
    let claimed = claim(Some(&given_back), NO_FLOOR, &claim_of(BOB), at(START));
    assert_eq!((granted(&claimed).attempt, granted(&claimed).recovered), (takeover.attempt, true));
    assert_kept(&renew(Some(&given_back), &renewal(), at(START)), RenewAnswer::Lost);

    let cautious = Claim { on_crash: OnCrash::InDoubt, ..claim_of(BOB) };
    assert_eq!(claim(Some(&given_back), NO_FLOOR, &cautious, at(START)).answer, ClaimAnswer::InDoubt);

    let nothing = written(release(Some(&takeover), &giving_up(ReleaseCause::NothingHappened), at(START)));
    let claimed = claim(Some(&nothing), NO_FLOOR, &claim_of(BOB), at(START));
    assert_eq!((granted(&claimed).attempt, granted(&claimed).recovered), (takeover.attempt, false));
}

#[test]
fn a_released_key_is_remembered_longer_than_it_must_wait() {
    let request = Release { retry_after: micros(50 * TTL), ..giving_up(ReleaseCause::Failed) };
    let record = written(release(Some(&in_flight()), &request, at(START)));
    let claimed = claim(Some(&record), NO_FLOOR, &claim_of(BOB), at(START + 50 * TTL));
    assert_eq!(granted(&claimed).attempt, 3);
    assert_eq!(record.expires_at, Some(at(START + 51 * TTL)));
}

#[test]
fn an_abandoned_claim_is_released_under_rerun_and_in_doubt_under_in_doubt() {
    let request = giving_up(ReleaseCause::Abandoned);
    let step = release(Some(&in_flight()), &request, at(START));
    assert_eq!(step.answer, ReleaseAnswer::Released);
    let released = written(step);
    assert_eq!((released.state, released.recovered), (State::Released, true), "the effect may have happened");

    let step = release(Some(&cautious()), &request, at(START));
    assert_eq!(step.answer, ReleaseAnswer::InDoubt);
    assert_eq!(written(step), Record { state: State::InDoubt, lease_until: at(START), ..cautious() });
}

#[test]
fn who_abandoned_its_run_does_not_end_the_doubt_about_it_by_another_word() {
    let abandoned = written(release(Some(&in_flight()), &giving_up(ReleaseCause::Abandoned), at(START)));
    let careful = Claim { on_crash: OnCrash::InDoubt, ..claim_of(BOB) };
    let doubtful = written(claim(Some(&abandoned), NO_FLOOR, &careful, at(START)));
    assert_eq!(doubtful.state, State::InDoubt);
    for cause in [ReleaseCause::Unused, ReleaseCause::Abandoned, ReleaseCause::Doubtful] {
        let step = release(Some(&doubtful), &giving_up(cause), at(START));
        assert!(step.write.is_none_or(|record| record.state == State::InDoubt), "{cause:?}");
    }
}

#[test]
fn a_release_asked_again_is_answered_the_same_and_changes_nothing() {
    let now = at(START + 60);
    let released = record_in(State::Released);
    for cause in CAUSES {
        let request = Release { retry_after: micros(500), ..giving_up(cause) };
        assert_kept(&release(Some(&released), &request, now), ReleaseAnswer::Released);
    }
    for cause in [ReleaseCause::Abandoned, ReleaseCause::Doubtful] {
        for record in [in_flight(), cautious()] {
            let once = release(Some(&record), &giving_up(cause), now);
            let answer = once.answer;
            assert_kept(&release(Some(&written(once)), &giving_up(cause), at(LEASE_OVER)), answer);
        }
    }
}

#[test]
fn what_its_worker_says_of_a_doubt_counts() {
    let doubt = record_in(State::InDoubt);
    let now = at(LEASE_OVER);
    let failed = written(release(Some(&doubt), &giving_up(ReleaseCause::Failed), now));
    assert_eq!((failed.state, failed.recovered, failed.attempt), (State::Released, false, 2));
    let unused = written(release(Some(&doubt), &giving_up(ReleaseCause::Unused), now));
    assert_eq!((unused.state, unused.recovered, unused.attempt), (State::Released, false, 1));
    // The worker renewed its lease and then reports that it does not know the outcome. The lease ends at once.
    let renewed = Record { lease_until: at(LEASE_OVER + 50), ..doubt.clone() };
    for cause in [ReleaseCause::Abandoned, ReleaseCause::Doubtful] {
        let step = release(Some(&renewed), &giving_up(cause), now);
        assert_eq!(step.answer, ReleaseAnswer::InDoubt);
        assert_eq!(written(step), Record { lease_until: now, ..doubt.clone() });
    }
}

#[test]
fn a_recorded_result_cannot_be_released() {
    for state in [State::Completed, State::Failed] {
        for cause in CAUSES {
            let step = release(Some(&record_in(state)), &giving_up(cause), at(START));
            assert_kept(&step, ReleaseAnswer::Lost);
        }
    }
}
