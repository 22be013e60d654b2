//! Rows of `resolve`, and reading a record without changing it.

use super::*;

fn words() -> [Resolution; 3] {
    [
        Resolution::Record(Verdict::Completed, value("seen")),
        Resolution::Record(Verdict::Failed, value("refused")),
        Resolution::Release,
    ]
}

#[test]
fn an_operator_records_what_happened() {
    for (verdict, state) in [(Verdict::Completed, State::Completed), (Verdict::Failed, State::Failed)] {
        let record = record_in(State::InDoubt);
        let word = Resolution::Record(verdict, value("seen"));
        let step = resolve(Some(&record), &word, at(START + 9_999));
        assert_eq!(step.answer, ResolveAnswer::Resolved);
        let expected = Record {
            state,
            owner: Owner::NOBODY,
            result: Some(value("seen")),
            completed_at: Some(at(START + 9_999)),
            expires_at: Some(at(START + 9_999 + TTL)),
            ..record
        };
        assert_eq!(written(step), expected);
    }
}

#[test]
fn an_operator_lets_the_body_run_again_at_once() {
    let record = Record { recovered: true, ..record_in(State::InDoubt) };
    let now = at(START + 9_999);
    let step = resolve(Some(&record), &Resolution::Release, now);
    assert_eq!(step.answer, ResolveAnswer::Resolved);
    let released = written(step);
    let expected = Record {
        state: State::Released,
        owner: Owner::NOBODY,
        recovered: false,
        retry_at: Timestamp::default(),
        expires_at: Some(at(START + 9_999 + TTL)),
        ..record
    };
    assert_eq!(released, expected);
    let request = Claim { on_crash: OnCrash::InDoubt, ..claim_of(BOB) };
    assert_eq!(granted(&claim(Some(&released), NO_FLOOR, &request, now)).attempt, 3);
}

#[test]
fn the_worker_in_doubt_does_not_take_an_operators_word_for_its_own() {
    let now = at(START);
    for word in words() {
        let record = written(resolve(Some(&record_in(State::InDoubt)), &word, now));
        assert_kept(&renew(Some(&record), &renewal(), now), RenewAnswer::Lost);
        assert_kept(&complete(Some(&record), &completion(value("late")), now), CompleteAnswer::Lost);
        for cause in [ReleaseCause::Failed, ReleaseCause::Abandoned] {
            assert_kept(&release(Some(&record), &giving_up(cause), now), ReleaseAnswer::Lost);
        }
    }
}

#[test]
fn nothing_but_a_key_in_doubt_is_resolved() {
    for state in [State::InFlight, State::Completed, State::Failed, State::Released] {
        for word in words() {
            for record in [record_in(state), Record { expires_at: None, ..record_in(state) }] {
                // A key with a lapsed lease is in doubt only after a claim has found it.
                let step = resolve(Some(&record), &word, at(LEASE_OVER));
                assert_kept(&step, ResolveAnswer::NotInDoubt(state));
            }
        }
    }
}

#[test]
fn an_absent_key_is_not_resolved() {
    let expired = in_flight();
    let end = expired.expires_at.unwrap();
    for word in words() {
        assert_kept(&resolve(None, &word, end), ResolveAnswer::Absent);
        assert_kept(&resolve(Some(&expired), &word, end), ResolveAnswer::Absent);
    }
}

#[test]
fn only_a_completed_or_failed_record_has_something_to_replay() {
    for state in [State::InFlight, State::Released, State::InDoubt] {
        assert_eq!(record_in(state).replay(), None);
    }
    for (state, verdict) in [(State::Completed, Verdict::Completed), (State::Failed, Verdict::Failed)] {
        assert_eq!(record_in(state).replay().map(|replay| replay.verdict), Some(verdict));
    }
}

#[test]
fn an_instant_is_rounded_up_and_never_wraps() {
    assert_eq!(at(5).after(Duration::from_nanos(1_001)), at(7));
    assert_eq!(at(5).after(Duration::ZERO), at(5));
    assert_eq!(at(5).after(Duration::MAX), at(u64::MAX));
    assert_eq!(at(u64::MAX).after(micros(1)), at(u64::MAX));
    assert_eq!(at(5).since(at(7)), micros(0));
    assert_eq!(at(7).since(at(5)), micros(2));
}

#[test]
fn debug_shows_neither_a_result_nor_a_whole_fingerprint() {
    let record = Record { result: Some(value("card 4711")), ..record_in(State::Completed) };
    let shown = format!("{record:?}");
    assert!(!shown.contains("4711"), "{shown}");
    assert!(shown.contains("Value(9 bytes)") && shown.contains("Fingerprint(01010101..)"), "{shown}");
}

#[test]
fn a_word_on_what_was_seen_counts_only_while_it_is_so() {
    for state in [State::InFlight, State::Completed, State::Failed, State::Released, State::InDoubt] {
        let record = record_in(state);
        let seen = Seen::of(&record);
        let others = [
            Seen { attempt: seen.attempt + 1, ..seen },
            Seen { fence: Fence::new(seen.fence.get() + 1), ..seen },
            Seen { state: if state == State::Failed { State::Completed } else { State::Failed }, ..seen },
        ];
        for other in others {
            for word in words().map(|word| word.if_seen(other)).iter().chain([&Resolution::ForgetSeen(other)])
            {
                assert_kept(&resolve(Some(&record), word, at(START)), ResolveAnswer::Changed(state));
            }
        }
        for word in words() {
            let plain = resolve(Some(&record), &word, at(START));
            assert_eq!(resolve(Some(&record), &word.if_seen(seen), at(START)), plain, "{state:?}");
        }
    }
}

#[test]
fn what_was_seen_is_forgotten_but_for_its_fence() {
    for state in [State::InFlight, State::Completed, State::Failed, State::Released, State::InDoubt] {
        let record = record_in(state);
        let step = resolve(Some(&record), &Resolution::ForgetSeen(Seen::of(&record)), at(START));
        assert_eq!(step.answer, ResolveAnswer::Resolved);
        let left = written(step);
        assert!(!is_live(&left, at(START)));
        let nothing = Some(StoredResult::Tombstone(Tombstone::NotEncodable));
        assert_eq!((left.fence, left.result.clone(), left.fingerprint), (record.fence, nothing, None));
        let claimed = claim(Some(&left), NO_FLOOR, &claim_of(BOB), at(START));
        assert_eq!(granted(&claimed).attempt, 1);
    }
}
