//! A record as bytes, and the name of its object. Contains no rule of the protocol.
//!
//! | bytes | what |
//! |---|---|
//! | 0 | version, 1 |
//! | 1..5 | lengths of scope and key, two bytes each |
//! | then | scope; key; state, crash policy, recovered: a byte each; owner, 16 bytes; fence, 8; attempt, 4; lease, retry, ttl and creation, 8 each |
//! | then, if there | completion and end, 8 each; fingerprint, 32; tombstone, 1: each behind a byte 1, or a byte 0 alone |
//! | then | number of steps, 4; each behind its length, 4 |
//! | then | 0, or 1 and the result |
//!
//! Numbers are big-endian. Scope and key come first in every version.

use bytes::{Buf as _, BufMut as _, Bytes};
use sha2::{Digest as _, Sha256};

use idem_core::RecordKey;
use idem_core::listing;
use idem_core::protocol::{Record, StoredResult};

use crate::columns::{Columns, Unreadable, micros, number_of};
use crate::step_bytes;

const VERSION: u8 = 1;

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
    let (scope, key) = (key.scope().as_str(), key.key().as_str());
    let mut out = Vec::with_capacity(256 + scope.len() + key.len());
    out.put_u8(VERSION);
    for text in [scope, key] {
        out.put_u16(u16::try_from(text.len()).unwrap_or(u16::MAX));
    }
    out.extend([scope, key].concat().into_bytes());
    out.extend([number_of(record.state), number_of(record.on_crash), record.recovered.into()]);
    out.extend_from_slice(record.owner.as_bytes());
    out.put_u64(record.fence.get());
    out.put_u32(record.attempt);
    for number in [record.lease_until.as_micros(), record.retry_at.as_micros(), micros(record.ttl)] {
        out.put_u64(number);
    }
    out.put_u64(record.created_at.as_micros());
    for instant in [record.completed_at, record.expires_at] {
        optional(&mut out, instant.map(|instant| instant.as_micros().to_be_bytes()));
    }
    optional(&mut out, record.fingerprint.as_ref().map(|fingerprint| *fingerprint.as_bytes()));
    let tombstone = match &record.result {
        Some(StoredResult::Tombstone(reason)) => Some([number_of(*reason)]),
        _ => None,
    };
    optional(&mut out, tombstone);
    out.put_u32(u32::try_from(record.steps.len()).unwrap_or(u32::MAX));
    for step in &record.steps {
        let step = step_bytes::encode(step);
        out.put_u32(u32::try_from(step.len()).unwrap_or(u32::MAX));
        out.extend(step);
    }
    match &record.result {
        Some(StoredResult::Value(value)) => {
            out.put_u8(1);
            out.extend_from_slice(value);
        }
        _ => out.put_u8(0),
    }
    out.into()
}

fn optional<const N: usize>(out: &mut Vec<u8>, value: Option<[u8; N]>) {
    out.put_u8(value.is_some().into());
    out.extend(value.iter().flatten());
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
    let head = head(&mut bytes).ok_or(Unreadable("bytes"))?;
    let mut steps = Vec::new();
    for _ in 0..bytes.try_get_u32().map_err(|_| Unreadable("steps"))? {
        let step = bytes.try_get_u32().ok().and_then(|length| taken(&mut bytes, length as usize));
        steps.push(step.and_then(step_bytes::decode).ok_or(Unreadable("steps"))?);
    }
    let result = match bytes.try_get_u8() {
        Ok(0) if bytes.is_empty() => None,
        Ok(1) => Some(bytes),
        _ => return Err(Unreadable("result")),
    };
    let columns = Columns {
        owner: Some(&head.owner),
        fingerprint: head.fingerprint.as_ref().map(|digest| digest.as_slice()),
        result: result.as_deref(),
        ..head.columns
    };
    Ok((key, columns.record()?.with_steps(steps)))
}

/// What is before the steps.
struct Head {
    columns: Columns<'static>,
    owner: [u8; 16],
    fingerprint: Option<[u8; 32]>,
}

fn head(bytes: &mut Bytes) -> Option<Head> {
    let mut byte = || bytes.try_get_u8().ok().map(u64::from);
    let (state, on_crash, recovered) = (byte()?, byte()?, byte()?);
    let owner = array(bytes)?;
    let fence = bytes.try_get_u64().ok()?;
    let attempt = u64::from(bytes.try_get_u32().ok()?);
    let mut number = || bytes.try_get_u64().ok();
    let (lease_until, retry_at, ttl, created_at) = (number()?, number()?, number()?, number()?);
    let (completed_at, expires_at) = (flagged(bytes)?, flagged(bytes)?);
    let (fingerprint, tombstone) = (flagged(bytes)?, flagged::<1>(bytes)?);
    let columns = Columns {
        state: Some(state),
        on_crash: Some(on_crash),
        recovered: Some(recovered),
        fence: Some(fence),
        attempt: Some(attempt),
        lease_until: Some(lease_until),
        retry_at: Some(retry_at),
        ttl: Some(ttl),
        created_at: Some(created_at),
        completed_at: completed_at.map(u64::from_be_bytes),
        expires_at: expires_at.map(u64::from_be_bytes),
        tombstone: tombstone.map(|[reason]| reason.into()),
        ..Columns::BLANK
    };
    Some(Head { columns, owner, fingerprint })
}

fn taken(bytes: &mut Bytes, length: usize) -> Option<Bytes> {
    (bytes.len() >= length).then(|| bytes.split_to(length))
}

fn array<const N: usize>(bytes: &mut Bytes) -> Option<[u8; N]> {
    taken(bytes, N)?.as_ref().try_into().ok()
}

/// A value that need not be there.
fn flagged<const N: usize>(bytes: &mut Bytes) -> Option<Option<[u8; N]>> {
    match bytes.try_get_u8().ok()? {
        0 => Some(None),
        1 => array(bytes).map(Some),
        _ => None,
    }
}
