//! Tests of what the transitions write, where the answers do not show it.
//!
//! The answers themselves are tested by the model check in `idem-testing`, which knows the correct answer
//! after any history.

use std::time::Duration;

use bytes::Bytes;

use super::*;

const LEASE: u64 = 100;
const TTL: u64 = 1_000;
/// When [`in_flight`] was granted.
const START: u64 = 10_000;
/// The first instant at which the lease of [`in_flight`] is over.
const LEASE_OVER: u64 = START + LEASE;

/// The owner of [`in_flight`], and another owner.
const ALICE: Owner = Owner::from_bytes([0xA; 16]);
const BOB: Owner = Owner::from_bytes([0xB; 16]);

const RED: Fingerprint = Fingerprint::from_bytes([1; 32]);
const NO_FLOOR: Fence = Fence::new(0);

const ALL_STATES: [State; 5] =
    [State::InFlight, State::Completed, State::Failed, State::Released, State::InDoubt];

const fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

const fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn value(text: &'static str) -> StoredResult {
    StoredResult::Value(Bytes::from_static(text.as_bytes()))
}

fn claim_of(owner: Owner) -> Claim {
    Claim::new(owner, micros(LEASE), micros(TTL)).with_fingerprint(Some(RED))
}

/// Alice's second attempt under fence 77, granted at [`START`].
fn in_flight() -> Record {
    Record {
        state: State::InFlight,
        owner: ALICE,
        fence: Fence::new(77),
        attempt: 2,
        recovered: false,
        on_crash: OnCrash::Rerun,
        lease_until: at(LEASE_OVER),
        retry_at: at(START),
        ttl: micros(TTL),
        fingerprint: Some(RED),
        result: None,
        steps: Vec::new(),
        created_at: at(START - 500),
        completed_at: None,
        expires_at: Some(at(LEASE_OVER + TTL)),
    }
}

/// The record of [`in_flight`] after the transition to this state at [`START`].
fn record_in(state: State) -> Record {
    let done = |result| Record {
        state,
        result: Some(value(result)),
        completed_at: Some(at(START)),
        expires_at: Some(at(START + TTL)),
        ..in_flight()
    };
    match state {
        State::InFlight => in_flight(),
        State::Completed => done("receipt"),
        State::Failed => done("refused"),
        State::Released => Record { state, expires_at: Some(at(START + TTL)), ..in_flight() },
        State::InDoubt => Record {
            state,
            on_crash: OnCrash::InDoubt,
            lease_until: at(START),
            expires_at: None,
            ..in_flight()
        },
    }
}

fn granted(step: &Transition<ClaimAnswer>) -> Grant {
    match &step.answer {
        ClaimAnswer::Granted(grant) => *grant,
        other => panic!("not granted but {other:?}"),
    }
}

#[test]
fn a_first_grant_writes_the_whole_record() {
    let step = claim(None, NO_FLOOR, &claim_of(BOB), at(START));
    assert_eq!(granted(&step), Grant::new(Fence::new(START), 1, false, micros(LEASE)));
    let expected =
        Record { owner: BOB, fence: Fence::new(START), attempt: 1, created_at: at(START), ..in_flight() };
    assert_eq!(step.write, Some(expected));
}

#[test]
fn a_takeover_keeps_when_the_record_was_made_and_what_it_was_made_for() {
    let request = claim_of(BOB).with_fingerprint(None);
    let step = claim(Some(&in_flight()), NO_FLOOR, &request, at(LEASE_OVER));
    let expected = Record {
        owner: BOB,
        fence: Fence::new(LEASE_OVER),
        attempt: 3,
        recovered: true,
        lease_until: at(LEASE_OVER + LEASE),
        retry_at: at(LEASE_OVER),
        expires_at: Some(at(LEASE_OVER + LEASE + TTL)),
        ..in_flight()
    };
    assert_eq!(step.write, Some(expected));
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
    let new = step.write.unwrap();
    assert_eq!((new.lease_until, new.expires_at), (at(u64::MAX), Some(at(u64::MAX))));
    let last = claim(None, Fence::new(u64::MAX), &request, at(u64::MAX));
    assert_eq!(granted(&last).fence, Fence::new(u64::MAX));
    assert_eq!(at(5).after(Duration::MAX), at(u64::MAX));
    assert_eq!(at(u64::MAX).after(micros(1)), at(u64::MAX));
    assert_eq!((at(5).since(at(7)), at(7).since(at(5))), (micros(0), micros(2)));
    // A started microsecond counts as a whole microsecond.
    assert_eq!((at(5).after(Duration::from_nanos(1_001)), at(5).after(Duration::ZERO)), (at(7), at(5)));
}

#[test]
fn a_word_on_what_was_seen_counts_only_while_it_is_so() {
    let words = || {
        [
            Resolution::Record(Verdict::Completed, value("seen")),
            Resolution::Record(Verdict::Failed, value("refused")),
            Resolution::Release,
        ]
    };
    for state in ALL_STATES {
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
                let step = resolve(Some(&record), word, at(START));
                assert_eq!(step, Transition { write: None, answer: ResolveAnswer::Changed(state) });
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
    for state in ALL_STATES {
        let record = record_in(state);
        let step = resolve(Some(&record), &Resolution::ForgetSeen(Seen::of(&record)), at(START));
        assert_eq!(step.answer, ResolveAnswer::Resolved);
        let forgotten = step.write.unwrap();
        assert!(!is_live(&forgotten, at(START)));
        let nothing = Some(StoredResult::Tombstone(Tombstone::NotEncodable));
        assert_eq!(
            (forgotten.fence, forgotten.result.clone(), forgotten.fingerprint),
            (record.fence, nothing, None)
        );
        let claimed = claim(Some(&forgotten), NO_FLOOR, &claim_of(BOB), at(START));
        assert_eq!(granted(&claimed).attempt, 1);
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

#[test]
fn debug_shows_neither_a_result_nor_a_whole_fingerprint() {
    let record = Record { result: Some(value("card 4711")), ..record_in(State::Completed) };
    let shown = format!("{record:?}");
    assert!(!shown.contains("4711"), "{shown}");
    assert!(shown.contains("Value(9 bytes)") && shown.contains("Fingerprint(01010101..)"), "{shown}");
}
