//! A record as bytes, and the name of its object. Contains no rule of the protocol.
//!
//! | bytes | what |
//! |---|---|
//! | 0 | version, 1 |
//! | then | scope; key |
//! | then | 13 numbers of 8 bytes; the last three are 0 for no value, otherwise the value plus one |
//! | then | owner, fingerprint, result; the steps |
//!
//! Numbers are big-endian. Before each text and each byte string, 4 bytes contain its length plus one, or 0
//! if it is absent. In every version, scope and key follow the first byte.

use bytes::{Buf as _, BufMut as _, Bytes};
use sha2::{Digest as _, Sha256};

use idem_core::RecordKey;
use idem_core::listing;
use idem_core::protocol::{Record, Timestamp};

use crate::columns::{Columns, Unreadable, micros, number_of, parts};
use crate::step_bytes;

const VERSION: u8 = 1;

const NUMBERS: usize = 13;

/// Upper limit for the bytes of a record without its result and its steps. The scope has at most 512 bytes,
/// and the key has at most 1,024.
pub(super) const MAX_HEAD_BYTES: usize = 2_048;

/// Upper limit for an encoded scope or key, in bytes. File systems allow 255 bytes for a name.
const LONGEST_PART: usize = 200;

/// The name of a record's object.
#[derive(Clone, PartialEq, Eq)]
pub struct ObjectName {
    /// The encoded scope: 1 to 200 bytes of `A-Z a-z 0-9 _ - =`.
    pub scope: String,
    /// The key, encoded in the same way.
    pub key: String,
}

impl ObjectName {
    /// The name of the object of `key`.
    #[must_use]
    pub fn of(key: &RecordKey) -> Self {
        Self { scope: part(key.scope().as_str()), key: part(key.key().as_str()) }
    }
}

/// Encodes the text with characters that every service accepts in a name. Two different texts get different
/// names, even in a folder that treats `a` and `A` as one name.
pub(super) fn part(text: &str) -> String {
    let encoded = |byte| match byte {
        b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' => char::from(byte).to_string(),
        _ => format!("={byte:02X}"),
    };
    let part: String = text.bytes().map(encoded).collect();
    // No encoded text contains `=s`, so the digest of a long text is never the name of another text.
    let digest = || Bytes::copy_from_slice(&Sha256::digest(text));
    if part.len() <= LONGEST_PART { part } else { format!("=s{:X}", digest()) }
}

pub(super) fn encode(key: &RecordKey, record: &Record) -> Bytes {
    let mut out = vec![VERSION];
    put(&mut out, Some(key.scope().as_str().as_bytes()));
    put(&mut out, Some(key.key().as_str().as_bytes()));
    let (tombstone, value) = parts(record.result.as_ref());
    let tombstone = tombstone.map(|reason| number_of(reason).into());
    let optional = |number: Option<u64>| number.map_or(0, |number| number.saturating_add(1));
    let numbers: [u64; NUMBERS] = [
        record.steps.len() as u64,
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
    put(&mut out, Some(record.owner.as_bytes()));
    put(&mut out, record.fingerprint.as_ref().map(|digest| digest.as_bytes().as_slice()));
    put(&mut out, value);
    record.steps.iter().for_each(|step| put(&mut out, Some(&step_bytes::encode(step))));
    out.into()
}

fn put(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    let length = bytes.map_or(0, |bytes| u32::try_from(bytes.len() + 1).unwrap_or(u32::MAX));
    out.put_u32(length);
    out.put_slice(bytes.unwrap_or_default());
}

/// Reads what [`put`] wrote; `None` if the bytes are truncated.
fn take<'b>(bytes: &mut &'b [u8]) -> Option<Option<&'b [u8]>> {
    match usize::try_from(bytes.try_get_u32().ok()?).ok()?.checked_sub(1) {
        None => Some(None),
        Some(length) => bytes.split_off(..length).map(Some),
    }
}

/// Reads the key at the beginning of a record's bytes. Leaves the bytes after the key in `bytes`.
pub(super) fn take_key(bytes: &mut &[u8]) -> Option<RecordKey> {
    bytes.try_get_u8().ok()?;
    let (scope, key) = (take(bytes)??, take(bytes)??);
    listing::name(str::from_utf8(scope).ok()?, str::from_utf8(key).ok()?)
}

pub(super) fn decode(mut bytes: &[u8]) -> Result<(RecordKey, Record), Unreadable> {
    if bytes.first() != Some(&VERSION) {
        return Err(Unreadable("version"));
    }
    let key = take_key(&mut bytes).ok_or(Unreadable("key"))?;
    let (count, columns) = head(&mut bytes).ok_or(Unreadable("bytes"))?;
    let step = |_| step_bytes::decode(Bytes::copy_from_slice(take(&mut bytes)??));
    let steps = (0..count).map(step).collect::<Option<Vec<_>>>();
    let steps = steps.filter(|_| bytes.is_empty()).ok_or(Unreadable("steps"))?;
    Ok((key, columns.record()?.with_steps(steps)))
}

/// The number of the steps, and the record without them.
fn head<'b>(bytes: &mut &'b [u8]) -> Option<(u64, Columns<'b>)> {
    let mut numbers = [0; NUMBERS];
    for number in &mut numbers {
        *number = bytes.try_get_u64().ok()?;
    }
    let [count, numbers @ ..] = numbers;
    let [state, on_crash, recovered, fence, attempt, lease_until, retry_at, ttl, created_at, optional @ ..] =
        numbers.map(Some);
    let [completed_at, expires_at, tombstone] = optional.map(|number| number?.checked_sub(1));
    let (owner, fingerprint, result) = (take(bytes)?, take(bytes)?, take(bytes)?);
    #[rustfmt::skip]
    let columns = Columns {
        state, owner, fence, attempt, recovered, on_crash, lease_until, retry_at, ttl, fingerprint, tombstone, created_at,
        completed_at, expires_at, result,
    };
    Some((count, columns))
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn a_record_keeps_the_name_that_every_version_gives_it() {
        let long = "k".repeat(201);
        for (text, name) in [
            ("payments.charge", "payments=2Echarge"),
            ("A/b", "=41=2Fb"),
            (long.as_str(), "=sEBF0EAD0A3B837BC388D6A36C93833FFF64A0A8BC8198FC0F1B7B5031DDDD254"),
        ] {
            assert_eq!(part(text), name);
        }
    }
}
