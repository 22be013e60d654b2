//! A record as bytes, and the name of its object. Contains no rule of the protocol.
//!
//! | bytes | what |
//! |---|---|
//! | 0 | version, 1 |
//! | 1..5 | lengths of scope and key, two bytes each |
//! | then | scope; key; 12 numbers of 8 bytes, of which the last three are 0 for none, and else one more; owner, 16 bytes |
//! | then | 0, or 1 and the fingerprint, 32 bytes |
//! | then | number of steps, 4 bytes; each behind its length, 4 bytes |
//! | then | 0, or 1 and the result |
//!
//! Numbers are big-endian. Scope and key come first in every version.

use bytes::{Buf as _, BufMut as _, Bytes};
use sha2::{Digest as _, Sha256};

use idem_core::RecordKey;
use idem_core::listing;
use idem_core::protocol::{Record, RecordedStep, StoredResult, Timestamp};

use crate::columns::{Columns, Unreadable, micros, number_of};
use crate::step_bytes;

const VERSION: u8 = 1;

/// How many numbers a record has.
const NUMBERS: usize = 12;

/// Upper limit of the bytes of a record that are neither its result nor steps: the scope has at most 512, the key 1,024.
pub(super) const MAX_HEAD_BYTES: usize = 2_048;

/// The longest encoded scope or key in a name: a file name has at most 255 bytes.
const LONGEST_PART: usize = 200;

/// The name of a record's object.
#[derive(Clone, PartialEq, Eq)]
pub struct ObjectName {
    /// The scope, in `A-Z a-z 0-9 _ - =`, of 1 to 200 bytes.
    pub scope: String,
    /// The key, in the same way.
    pub key: String,
}

impl ObjectName {
    /// The name of the object of `key`.
    #[must_use]
    pub fn of(key: &RecordKey) -> Self {
        Self { scope: part(key.scope().as_str()), key: part(key.key().as_str()) }
    }
}

/// Text in characters that every service takes in a name. Two texts have two parts.
pub(super) fn part(text: &str) -> String {
    let mut part = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' => part.push(char::from(byte)),
            _ => push_hex(&mut part, byte, "="),
        }
    }
    if part.len() <= LONGEST_PART {
        return part;
    }
    // No encoded byte begins with an `s`.
    let mut digest = "=s".to_owned();
    Sha256::digest(text).iter().for_each(|byte| push_hex(&mut digest, *byte, ""));
    digest
}

fn push_hex(part: &mut String, byte: u8, mark: &str) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    part.push_str(mark);
    part.extend([byte >> 4, byte & 15].map(|digit| char::from(DIGITS[usize::from(digit)])));
}

/// The bytes of a record.
pub(super) fn encode(key: &RecordKey, record: &Record) -> Bytes {
    let texts = [key.scope().as_str(), key.key().as_str()];
    let mut out = vec![VERSION];
    texts.iter().for_each(|text| out.put_u16(u16::try_from(text.len()).unwrap_or(u16::MAX)));
    texts.iter().for_each(|text| out.put_slice(text.as_bytes()));
    let (value, tombstone) = match &record.result {
        Some(StoredResult::Value(value)) => (Some(value), None),
        Some(StoredResult::Tombstone(reason)) => (None, Some(number_of(*reason).into())),
        None => (None, None),
    };
    let optional = |number: Option<u64>| number.map_or(0, |number| number.saturating_add(1));
    let numbers: [u64; NUMBERS] = [
        number_of(record.state).into(),
        number_of(record.on_crash).into(),
        record.recovered.into(),
        record.fence.get(),
        record.attempt.into(),
        record.lease_until.as_micros(),
        record.retry_at.as_micros(),
        micros(record.ttl),
        record.created_at.as_micros(),
        optional(record.completed_at.map(Timestamp::as_micros)),
        optional(record.expires_at.map(Timestamp::as_micros)),
        optional(tombstone),
    ];
    numbers.iter().for_each(|number| out.put_u64(*number));
    out.put_slice(record.owner.as_bytes());
    put_optional(&mut out, record.fingerprint.as_ref().map(|digest| digest.as_bytes().as_slice()));
    out.put_u32(u32::try_from(record.steps.len()).unwrap_or(u32::MAX));
    for step in &record.steps {
        let step = step_bytes::encode(step);
        out.put_u32(u32::try_from(step.len()).unwrap_or(u32::MAX));
        out.put_slice(&step);
    }
    put_optional(&mut out, value.map(|value| &**value));
    out.into()
}

fn put_optional(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    out.put_u8(bytes.is_some().into());
    out.put_slice(bytes.unwrap_or_default());
}

/// Takes the key of a record from its bytes.
pub(super) fn take_key(bytes: &mut Bytes) -> Option<RecordKey> {
    bytes.try_get_u8().ok()?;
    let lengths = [bytes.try_get_u16().ok()?, bytes.try_get_u16().ok()?];
    let [scope, key] = lengths.map(|length| taken(bytes, length.into()));
    let (scope, key) = (String::from_utf8(scope?.into()).ok()?, String::from_utf8(key?.into()).ok()?);
    listing::name(&scope, &key)
}

/// The key and the record in these bytes.
pub(super) fn decode(mut bytes: Bytes) -> Result<(RecordKey, Record), Unreadable> {
    if bytes.first() != Some(&VERSION) {
        return Err(Unreadable("version"));
    }
    let key = take_key(&mut bytes).ok_or(Unreadable("key"))?;
    let (numbers, owner, fingerprint) = head(&mut bytes).ok_or(Unreadable("bytes"))?;
    let steps = steps(&mut bytes).ok_or(Unreadable("steps"))?;
    let result = match bytes.try_get_u8() {
        Ok(0) if bytes.is_empty() => None,
        Ok(1) => Some(bytes),
        _ => return Err(Unreadable("result")),
    };
    let [state, on_crash, recovered, fence, attempt, lease_until, retry_at, ttl, created_at, optional @ ..] =
        numbers.map(Some);
    let [completed_at, expires_at, tombstone] = optional.map(|number| number?.checked_sub(1));
    let (owner, fingerprint, result) = (Some(&*owner), fingerprint.as_deref(), result.as_deref());
    #[rustfmt::skip]
    let columns = Columns {
        state, owner, fence, attempt, recovered, on_crash, lease_until, retry_at, ttl, fingerprint, tombstone, created_at,
        completed_at, expires_at, result,
    };
    Ok((key, columns.record()?.with_steps(steps)))
}

/// What is before the steps: numbers, owner, fingerprint.
fn head(bytes: &mut Bytes) -> Option<([u64; NUMBERS], Bytes, Option<Bytes>)> {
    let mut numbers = [0; NUMBERS];
    for number in &mut numbers {
        *number = bytes.try_get_u64().ok()?;
    }
    let owner = taken(bytes, 16)?;
    let fingerprint = match bytes.try_get_u8().ok()? {
        0 => None,
        _ => Some(taken(bytes, 32)?),
    };
    Some((numbers, owner, fingerprint))
}

fn steps(bytes: &mut Bytes) -> Option<Vec<RecordedStep>> {
    let count = bytes.try_get_u32().ok()?;
    let step = |_| step_bytes::decode(length_taken(bytes)?);
    (0..count).map(step).collect()
}

fn length_taken(bytes: &mut Bytes) -> Option<Bytes> {
    let length = usize::try_from(bytes.try_get_u32().ok()?).ok()?;
    taken(bytes, length)
}

fn taken(bytes: &mut Bytes, length: usize) -> Option<Bytes> {
    (bytes.len() >= length).then(|| bytes.split_to(length))
}
