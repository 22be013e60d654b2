//! The packed record: how one record lies in one string.
//!
//! Owns the bytes, in both directions; the scripts beside it know the same places. It knows neither
//! connections nor rules.
//!
//! | bytes | what |
//! |---|---|
//! | 0 | version: 2 with steps, else 1, which a version that knows of no steps reads |
//! | 1 | state: `I` in flight, `C` completed, `F` failed, `R` released, `D` in doubt |
//! | 2 | result: 0 none, 1 a value, 2 too large, 3 not encodable, 4 attempts ran out |
//! | 3 | flags: 1 recovered, 2 claimed under `in_doubt`, 4 has a fingerprint |
//! | 4..20 | owner |
//! | 20..28 | fence |
//! | 28..32 | attempt |
//! | 32..40, 40..48, 48..56 | lease until, retry at, created at |
//! | 56..64 | ttl |
//! | 64..72, 72..80 | completed at, expires at; 0 for never |
//! | 80..112 | fingerprint, where there is one |
//! | the rest | the value; or, in version 2, the steps, each with its length in 4 bytes in front |
//!
//! Numbers are big-endian; instants and durations are microseconds.

use std::time::Duration;

use bytes::{Buf, Bytes};

use crate::error::StoreError;
use crate::protocol::{
    Claim, Fence, Fingerprint, OnCrash, Owner, Record, RecordedStep, State, StoredResult, Timestamp,
    Tombstone, Verdict,
};
use crate::store::step_bytes;

pub(super) const VERSION: u8 = 1;
const WITH_STEPS: u8 = 2;
/// The longest string a server takes, unless it is told otherwise; `record_step.lua` knows it too.
pub(super) const LARGEST: usize = 512 << 20;
const HEADER: usize = 80;
const RECOVERED: u8 = 1;
const IN_DOUBT: u8 = 2;
const HAS_FINGERPRINT: u8 = 4;

/// The record in `bytes`.
pub(super) fn decode(bytes: Vec<u8>) -> Result<Record, StoreError> {
    if bytes.first().is_some_and(|version| ![VERSION, WITH_STEPS].contains(version)) {
        return Err(StoreError::corrupt_record(
            "it is not a record of idem, or was written by a newer version: see `docs/operations.md` to look at \
             it; no call with this key runs until it is gone",
        ));
    }
    decode_first(Bytes::from(bytes)).ok_or_else(damaged)
}

/// The most bytes of a record before its value.
pub(super) const LONGEST_HEAD: usize = HEADER + 32;

/// The record in the first [`LONGEST_HEAD`] bytes of one that is `length` bytes long, with an empty value in
/// the place of its own, and how many bytes that has.
pub(super) fn decode_head(mut bytes: Vec<u8>, length: u64) -> Result<(Record, u64), StoreError> {
    let has_fingerprint = bytes.get(3).is_some_and(|flags| flags & HAS_FINGERPRINT != 0);
    let head = HEADER + if has_fingerprint { 32 } else { 0 };
    bytes.truncate(head);
    Ok((decode(bytes)?, length.saturating_sub(head as u64)))
}

/// What is said of a value that no script takes for a record.
pub(super) fn damaged() -> StoreError {
    StoreError::corrupt_record(
        "the value under this key is not a whole record: see `docs/operations.md` to look at it; no call with \
         this key runs until it is gone",
    )
}

fn decode_first(mut bytes: Bytes) -> Option<Record> {
    if bytes.len() < HEADER {
        return None;
    }
    let has_steps = bytes.get_u8() == WITH_STEPS;
    let state = state(bytes.get_u8())?;
    let kind = bytes.get_u8();
    let flags = bytes.get_u8();
    let mut owner = [0; 16];
    bytes.copy_to_slice(&mut owner);
    let fence = Fence::new(bytes.get_u64());
    let attempt = bytes.get_u32();
    let [lease_until, retry_at, created_at] = [(); 3].map(|()| Timestamp::from_micros(bytes.get_u64()));
    let ttl = Duration::from_micros(bytes.get_u64());
    let [completed_at, expires_at] = [(); 2].map(|()| Some(bytes.get_u64()).filter(|micros| *micros != 0));
    let mut fingerprint = None;
    if flags & HAS_FINGERPRINT != 0 {
        let mut digest = [0; 32];
        bytes.try_copy_to_slice(&mut digest).ok()?;
        fingerprint = Some(Fingerprint::from_bytes(digest));
    }
    let steps = if has_steps { decode_steps(&mut bytes)? } else { Vec::new() };
    let result = match kind {
        0 => None,
        1 => Some(StoredResult::Value(bytes)),
        2 => Some(StoredResult::Tombstone(Tombstone::TooLarge)),
        3 => Some(StoredResult::Tombstone(Tombstone::NotEncodable)),
        4 => Some(StoredResult::Tombstone(Tombstone::Exhausted)),
        _ => return None,
    };
    let is_terminal = matches!(state, State::Completed | State::Failed);
    if is_terminal != result.is_some() || is_terminal != completed_at.is_some() || (is_terminal && has_steps)
    {
        return None;
    }
    Some(Record {
        state,
        owner: Owner::from_bytes(owner),
        fence,
        attempt,
        recovered: flags & RECOVERED != 0,
        on_crash: if flags & IN_DOUBT != 0 { OnCrash::InDoubt } else { OnCrash::Rerun },
        lease_until,
        retry_at,
        ttl,
        fingerprint,
        result,
        steps,
        created_at,
        completed_at: completed_at.map(Timestamp::from_micros),
        expires_at: expires_at.map(Timestamp::from_micros),
    })
}

/// The steps, to the end of the bytes.
fn decode_steps(bytes: &mut Bytes) -> Option<Vec<RecordedStep>> {
    let mut steps = Vec::new();
    while !bytes.is_empty() {
        let length = usize::try_from(bytes.try_get_u32().ok()?).ok()?;
        if length > bytes.len() {
            return None;
        }
        steps.push(step_bytes::decode(bytes.split_to(length))?);
    }
    Some(steps)
}

/// A step as it lies in a record.
pub(super) fn step(step: &RecordedStep) -> Vec<u8> {
    let bytes = step_bytes::encode(step);
    // No string of a server is as long as this could not say.
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut framed = length.to_be_bytes().to_vec();
    framed.extend_from_slice(&bytes);
    framed
}

/// The state that this byte stands for.
pub(super) const fn state(byte: u8) -> Option<State> {
    Some(match byte {
        b'I' => State::InFlight,
        b'C' => State::Completed,
        b'F' => State::Failed,
        b'R' => State::Released,
        b'D' => State::InDoubt,
        _ => return None,
    })
}

/// State and kind of a result, as the scripts take them, and its bytes.
pub(super) fn terminal(verdict: Verdict, result: &StoredResult) -> ([u8; 2], &[u8]) {
    let state = match verdict {
        Verdict::Completed => b'C',
        Verdict::Failed => b'F',
    };
    match result {
        StoredResult::Value(bytes) => ([state, 1], bytes),
        StoredResult::Tombstone(Tombstone::TooLarge) => ([state, 2], &[]),
        StoredResult::Tombstone(Tombstone::NotEncodable) => ([state, 3], &[]),
        StoredResult::Tombstone(Tombstone::Exhausted) => ([state, 4], &[]),
    }
}

/// The first bytes of the record that a first grant makes.
pub(super) fn first_grant(request: &Claim) -> [u8; 20] {
    let policy = if request.on_crash == OnCrash::InDoubt { IN_DOUBT } else { 0 };
    let print = if request.fingerprint.is_some() { HAS_FINGERPRINT } else { 0 };
    let mut bytes = [0; 20];
    bytes[..4].copy_from_slice(&[VERSION, b'I', 0, policy | print]);
    bytes[4..].copy_from_slice(request.owner.as_bytes());
    bytes
}

/// Owner and fence as they lie in a record.
pub(super) fn holder(owner: &Owner, fence: Fence) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..16].copy_from_slice(owner.as_bytes());
    bytes[16..].copy_from_slice(&fence.get().to_be_bytes());
    bytes
}

/// A duration as the scripts take it: whole microseconds, rounded up. At most what leaves room for a sum of
/// three in 64 bits: 73,000 years.
pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX).min(1 << 61)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::StoreErrorKind;

    fn packed(state: u8, kind: u8, flags: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = vec![VERSION, state, kind, flags];
        bytes.extend([7; 16]);
        bytes.extend(5_u64.to_be_bytes());
        bytes.extend(2_u32.to_be_bytes());
        let completed = u64::from(kind != 0) * 40;
        for number in [10_u64, 20, 30, 99, completed, 50] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.extend(rest);
        bytes
    }

    #[test]
    fn every_field_is_read_from_its_place() {
        let mut rest = vec![9; 32];
        rest.extend(b"\0result");
        let record = decode(packed(b'F', 1, 7, &rest)).unwrap();
        assert_eq!(
            record,
            Record {
                state: State::Failed,
                owner: Owner::from_bytes([7; 16]),
                fence: Fence::new(5),
                attempt: 2,
                recovered: true,
                on_crash: OnCrash::InDoubt,
                lease_until: Timestamp::from_micros(10),
                retry_at: Timestamp::from_micros(20),
                ttl: Duration::from_micros(99),
                fingerprint: Some(Fingerprint::from_bytes([9; 32])),
                result: Some(StoredResult::Value(Bytes::from_static(b"\0result"))),
                steps: Vec::new(),
                created_at: Timestamp::from_micros(30),
                completed_at: Some(Timestamp::from_micros(40)),
                expires_at: Some(Timestamp::from_micros(50)),
            }
        );
    }

    fn with_steps(mut record: Vec<u8>, steps: &[u8]) -> Vec<u8> {
        record[0] = WITH_STEPS;
        record.extend(steps);
        record
    }

    #[test]
    fn steps_lie_behind_the_fingerprint() {
        let named = |name: &str| RecordedStep {
            name: name.into(),
            input: None,
            result: StoredResult::Value(Bytes::from_static(b"\0")),
        };
        let steps = [step(&named("reserve")), step(&named(""))].concat();
        for (flags, fingerprint) in [(0, &[][..]), (HAS_FINGERPRINT, &[9; 32])] {
            let record = decode(with_steps(packed(b'I', 0, flags, fingerprint), &steps)).unwrap();
            assert_eq!(record.steps, [named("reserve"), named("")]);
            assert_eq!(record.fingerprint.is_some(), flags != 0);
        }
    }

    #[test]
    fn what_is_not_a_whole_record_is_corrupt() {
        let whole = packed(b'I', 0, HAS_FINGERPRINT, &[1; 32]);
        assert!(decode(whole.clone()).is_ok());
        let mut newer = whole.clone();
        newer[0] = 3;
        let cases = [
            Vec::new(),
            b"OK".to_vec(),
            newer,
            whole[..HEADER + 31].to_vec(),
            whole[..HEADER - 1].to_vec(),
            packed(b'X', 0, 0, &[]),
            packed(b'I', 1, 0, b"a result in flight"),
            packed(b'C', 0, 0, &[]),
            packed(b'C', 9, 0, &[]),
            with_steps(packed(b'C', 1, 0, &[]), &[]),
            with_steps(packed(b'I', 0, 0, &[]), &[0, 0, 0]),
            with_steps(packed(b'I', 0, 0, &[]), &[0, 0, 0, 8, 1, 2, 0, 0, 0, 0, 0]),
            with_steps(packed(b'I', 0, 0, &[]), &[0, 0, 0, 7, 9, 2, 0, 0, 0, 0, 0]),
        ];
        for bytes in cases {
            assert_eq!(decode(bytes.clone()).unwrap_err().kind(), StoreErrorKind::CorruptRecord, "{bytes:?}");
        }
    }
}
