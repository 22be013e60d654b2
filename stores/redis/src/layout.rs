//! The packed record: one record in one string.
//!
//! Owns encoding and decoding; `fields` has the positions of the fields. This module knows neither
//! connections nor rules.

use std::ops::Range;
use std::time::Duration;

use bytes::{Buf, Bytes};

use idem_core::StoreError;
use idem_core::protocol::{
    Claim, Fence, Fingerprint, OnCrash, Owner, Record, RecordedStep, Seen, State, StoredResult, Timestamp,
    Tombstone, Verdict,
};
use idem_store_kit::step_bytes;

use super::fields::{
    ATTEMPT, COMPLETED, COMPLETED_AT, CREATED_AT, EXPIRES_AT, FAILED, FENCE, FINGERPRINT, FLAG_FINGERPRINT,
    FLAG_IN_DOUBT, FLAG_RECOVERED, FLAGS, HEADER, IN_DOUBT, IN_FLIGHT, KIND, KIND_NONE, KIND_VALUE,
    LEASE_UNTIL, OWNER, RELEASED, RETRY_AT, STATE, THIS_VERSION, TTL,
};

pub(super) fn decode(bytes: Vec<u8>) -> Result<Record, StoreError> {
    if bytes.first().is_some_and(|version| *version != THIS_VERSION) {
        return Err(StoreError::corrupt_record(
            "it is not a record of idem, or was written by a newer version: see `docs/stores/redis.md` to look at \
             it; no call with this key runs until it is gone",
        ));
    }
    decode_first(Bytes::from(bytes)).ok_or_else(damaged)
}

/// The largest number of bytes before the value of a record.
pub(super) const LONGEST_HEAD: usize = FINGERPRINT.end;

/// Decodes the first [`LONGEST_HEAD`] bytes of a record of `length` bytes. Returns the record without its
/// steps and with an empty value, and how many bytes the value or the steps have.
pub(super) fn decode_head(mut bytes: Vec<u8>, length: u64) -> Result<(Record, u64), StoreError> {
    let has_fingerprint = bytes.get(FLAGS.start).is_some_and(|flags| flags & FLAG_FINGERPRINT != 0);
    let head = if has_fingerprint { FINGERPRINT.end } else { HEADER };
    bytes.truncate(head);
    Ok((decode(bytes)?, length.saturating_sub(head as u64)))
}

/// The error for a value that is not a whole record of this version.
pub(super) fn damaged() -> StoreError {
    StoreError::corrupt_record(
        "the value under this key is not a whole record: see `docs/stores/redis.md` to look at it; no call with \
         this key runs until it is gone",
    )
}

fn field<const N: usize>(bytes: &[u8], place: Range<usize>) -> Option<[u8; N]> {
    bytes.get(place)?.try_into().ok()
}

fn number(bytes: &[u8], place: Range<usize>) -> Option<u64> {
    field(bytes, place).map(u64::from_be_bytes)
}

fn decode_first(mut bytes: Bytes) -> Option<Record> {
    let byte = |place: Range<usize>| bytes.get(place.start).copied();
    let instant = |place| number(&bytes, place).map(Timestamp::from_micros);
    let end = |place| {
        Some(number(&bytes, place)?).map(|micros| (micros != 0).then(|| Timestamp::from_micros(micros)))
    };
    let (state, kind, flags) = (state(byte(STATE)?)?, byte(KIND)?, byte(FLAGS)?);
    let owner = Owner::from_bytes(field(&bytes, OWNER)?);
    let fence = Fence::new(number(&bytes, FENCE)?);
    let attempt = u32::from_be_bytes(field(&bytes, ATTEMPT)?);
    let (lease_until, retry_at, created_at) =
        (instant(LEASE_UNTIL)?, instant(RETRY_AT)?, instant(CREATED_AT)?);
    let ttl = Duration::from_micros(number(&bytes, TTL)?);
    let (completed_at, expires_at) = (end(COMPLETED_AT)?, end(EXPIRES_AT)?);
    let mut head = HEADER;
    let mut fingerprint = None;
    if flags & FLAG_FINGERPRINT != 0 {
        fingerprint = Some(Fingerprint::from_bytes(field(&bytes, FINGERPRINT)?));
        head = FINGERPRINT.end;
    }
    bytes.advance(head);
    let steps = if kind == KIND_VALUE { Vec::new() } else { decode_steps(&mut bytes)? };
    let result = match kind {
        KIND_NONE => None,
        kind => Some(step_bytes::of_kind(kind, bytes)?),
    };
    let is_terminal = matches!(state, State::Completed | State::Failed);
    let keeps_steps = !is_terminal || result == Some(StoredResult::Tombstone(Tombstone::Exhausted));
    if is_terminal != result.is_some()
        || is_terminal != completed_at.is_some()
        || (!steps.is_empty() && !keeps_steps)
    {
        return None;
    }
    Some(
        Record::new(state, owner, fence)
            .with_attempt(attempt)
            .with_recovered(flags & FLAG_RECOVERED != 0)
            .with_on_crash(if flags & FLAG_IN_DOUBT != 0 { OnCrash::InDoubt } else { OnCrash::Rerun })
            .with_lease_until(lease_until)
            .with_retry_at(retry_at)
            .with_ttl(ttl)
            .with_fingerprint(fingerprint)
            .with_result(result)
            .with_steps(steps)
            .with_created_at(created_at)
            .with_completed_at(completed_at)
            .with_expires_at(expires_at),
    )
}

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

/// A step as stored in a record.
pub(super) fn step(step: &RecordedStep) -> Vec<u8> {
    let bytes = step_bytes::encode(step);
    // The length always fits into 4 bytes, because a string on a server is shorter than 4 GiB.
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], &bytes].concat()
}

const STATES: [(u8, State); 5] = [
    (IN_FLIGHT, State::InFlight),
    (COMPLETED, State::Completed),
    (FAILED, State::Failed),
    (RELEASED, State::Released),
    (IN_DOUBT, State::InDoubt),
];

pub(super) fn state(byte: u8) -> Option<State> {
    STATES.iter().find(|known| known.0 == byte).map(|known| known.1)
}

/// State, fence and attempt as stored in a record, one after the other. An unknown state becomes the byte 0,
/// which no record has, so the script finds that the record has changed.
pub(super) fn seen(seen: Seen) -> Vec<u8> {
    let state = STATES.iter().find(|known| known.1 == seen.state).map_or(0, |known| known.0);
    [&[state][..], &seen.fence.get().to_be_bytes(), &seen.attempt.to_be_bytes()].concat()
}

/// The state and the kind of a result, in the form that the scripts expect, and the bytes of the result.
pub(super) fn terminal(verdict: Verdict, result: &StoredResult) -> ([u8; 2], &[u8]) {
    let state = match verdict {
        Verdict::Completed => COMPLETED,
        Verdict::Failed => FAILED,
    };
    let (kind, bytes) = step_bytes::kind(result);
    ([state, kind], bytes)
}

/// The first bytes of the record of a first grant.
pub(super) fn first_grant(request: &Claim) -> Vec<u8> {
    let policy = if request.on_crash == OnCrash::InDoubt { FLAG_IN_DOUBT } else { 0 };
    let print = if request.fingerprint.is_some() { FLAG_FINGERPRINT } else { 0 };
    [&[THIS_VERSION, IN_FLIGHT, KIND_NONE, policy | print], &request.owner.as_bytes()[..]].concat()
}

/// Owner and fence as stored in a record.
pub(super) fn holder(owner: &Owner, fence: Fence) -> Vec<u8> {
    [&owner.as_bytes()[..], &fence.get().to_be_bytes()].concat()
}

/// A duration in the form that the scripts expect: whole microseconds, rounded up. At most 73,000 years, so
/// that a sum of three such durations fits in 64 bits.
pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX).min(1 << 61)
}

#[cfg(test)]
mod tests {
    use super::*;
    use idem_core::StoreErrorKind;

    fn packed(state: u8, kind: u8, flags: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = vec![THIS_VERSION, state, kind, flags];
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
    fn what_is_not_a_whole_record_is_corrupt() {
        let named = RecordedStep::new("a".into(), None, StoredResult::Value(Bytes::new()));
        let whole = packed(b'I', 0, FLAG_FINGERPRINT, &[1; 32]);
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
            packed(b'C', 2, 0, &step(&named)),
            packed(b'I', 0, 0, &[0, 0, 0]),
            packed(b'I', 0, 0, &[0, 0, 0, 8, 1, 2, 0, 0, 0, 0, 0]),
            packed(b'I', 0, 0, &[0, 0, 0, 7, 9, 2, 0, 0, 0, 0, 0]),
        ];
        for bytes in cases {
            assert_eq!(decode(bytes.clone()).unwrap_err().kind(), StoreErrorKind::CorruptRecord, "{bytes:?}");
        }
    }
}
