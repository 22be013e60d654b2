//! Tests of the protocol's table, row by row: what must happen, and what must not.
//!
//! Owns the examples. Histories of many steps belong to the property tests and to the model check.

mod claiming;
mod granting;
mod holding;
mod resolving;
mod stepping;

use std::num::NonZeroU32;
use std::time::Duration;

use bytes::Bytes;

use super::*;

const LEASE: u64 = 100;
const TTL: u64 = 1_000;
/// When [`in_flight`] was granted.
const START: u64 = 10_000;
/// The first instant at which its lease is over.
const LEASE_OVER: u64 = START + LEASE;

/// The owner of [`in_flight`].
const ALICE: Owner = Owner::from_bytes([0xA; 16]);
/// Another owner.
const BOB: Owner = Owner::from_bytes([0xB; 16]);

const RED: Fingerprint = Fingerprint::from_bytes([1; 32]);
const BLUE: Fingerprint = Fingerprint::from_bytes([2; 32]);

const NO_FLOOR: Fence = Fence::new(0);

const ALL_STATES: [State; 5] =
    [State::InFlight, State::Completed, State::Failed, State::Released, State::InDoubt];

const CAUSES: [ReleaseCause; 5] = [
    ReleaseCause::Failed,
    ReleaseCause::Abandoned,
    ReleaseCause::Doubtful,
    ReleaseCause::Unused,
    ReleaseCause::NothingHappened,
];

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
    Claim {
        owner,
        fingerprint: Some(RED),
        lease: micros(LEASE),
        ttl: micros(TTL),
        on_crash: OnCrash::Rerun,
        max_attempts: None,
        recovers: false,
    }
}

fn at_most(attempts: u32, owner: Owner) -> Claim {
    Claim { max_attempts: NonZeroU32::new(attempts), ..claim_of(owner) }
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

/// [`in_flight`] under the policy that never reruns.
fn cautious() -> Record {
    Record { on_crash: OnCrash::InDoubt, expires_at: None, ..in_flight() }
}

/// The record of [`in_flight`] after the transition to this state at [`START`].
fn record_in(state: State) -> Record {
    let done = |verdict: &'static str| Record {
        state,
        result: Some(value(verdict)),
        completed_at: Some(at(START)),
        expires_at: Some(at(START + TTL)),
        ..in_flight()
    };
    match state {
        State::InFlight => in_flight(),
        State::Completed => done("receipt"),
        State::Failed => done("refused"),
        State::Released => Record { state, expires_at: Some(at(START + TTL)), ..in_flight() },
        State::InDoubt => Record { state, lease_until: at(START), ..cautious() },
    }
}

fn renewal() -> Renew {
    Renew { owner: ALICE, fence: Fence::new(77), lease: micros(LEASE) }
}

fn completion(result: StoredResult) -> Complete {
    Complete { owner: ALICE, fence: Fence::new(77), verdict: Verdict::Completed, result, ttl: micros(TTL) }
}

fn giving_up(cause: ReleaseCause) -> Release {
    Release { owner: ALICE, fence: Fence::new(77), cause, retry_after: micros(0) }
}

fn granted(step: &Transition<ClaimAnswer>) -> Grant {
    match &step.answer {
        ClaimAnswer::Granted(grant) => *grant,
        other => panic!("not granted but {other:?}"),
    }
}

/// The record that was written. Checks that it has no expiry exactly if it must have none.
fn written<A>(step: Transition<A>) -> Record {
    let record = step.write.expect("a record was written");
    assert_eq!(is_endless(&record), record.expires_at.is_none(), "{record:?}");
    record
}

#[track_caller]
fn assert_kept<A: PartialEq + std::fmt::Debug>(step: &Transition<A>, answer: A) {
    assert_eq!(*step, Transition { write: None, answer });
}
