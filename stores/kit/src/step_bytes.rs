//! A recorded step as bytes, for stores that keep steps as bytes.
//!
//! Owns the byte format, encoding and decoding. Two steps are equal if and only if their bytes are equal.
//!
//! | bytes | what |
//! |---|---|
//! | 0 | version, 1 |
//! | 1 | result: 1 a value, 2 too large, 3 not encodable, 4 attempts ran out |
//! | 2 | flags: 1 has an input |
//! | 3..7 | length of the name, big-endian |
//! | then | the name; the input, 32 bytes, where there is one; the rest is the value |

use bytes::{Buf, BufMut, Bytes};

use idem_core::protocol::{Fingerprint, RecordedStep, StoredResult};

use crate::columns::{number_of, parts, word};

const VERSION: u8 = 1;
const HAS_INPUT: u8 = 1;

/// The kind of a value, and of the first tombstone.
const VALUE: u8 = 1;
const TOMBSTONES: u8 = 2;

/// The number of a result's kind, and the bytes of its value. A result with a value has the kind 1. The
/// tombstones have the kinds from 2, in the order of [`Word::ALL`](crate::columns::Word::ALL).
#[must_use]
pub fn kind(result: &StoredResult) -> (u8, &[u8]) {
    match parts(Some(result)) {
        (Some(tombstone), _) => (number_of(tombstone).saturating_add(TOMBSTONES), &[]),
        (None, value) => (VALUE, value.unwrap_or_default()),
    }
}

/// The result of this kind with this value; `None` if this version knows no such kind, or if a tombstone has
/// a value.
#[must_use]
pub fn of_kind(kind: u8, value: Bytes) -> Option<StoredResult> {
    if kind == VALUE {
        return Some(StoredResult::Value(value));
    }
    let tombstone = word(kind.checked_sub(TOMBSTONES)?.into()).ok()?;
    value.is_empty().then_some(StoredResult::Tombstone(tombstone))
}

/// The bytes of a step.
#[must_use]
pub fn encode(step: &RecordedStep) -> Vec<u8> {
    let (kind, value) = kind(&step.result);
    let mut bytes = Vec::with_capacity(7 + step.name.len() + 32 + value.len());
    bytes.extend([VERSION, kind, if step.input.is_some() { HAS_INPUT } else { 0 }]);
    // This conversion never fails: the engine limits a name to a few hundred bytes, and no store accepts 4
    // GiB.
    bytes.put_u32(u32::try_from(step.name.len()).unwrap_or(u32::MAX));
    bytes.extend_from_slice(step.name.as_bytes());
    if let Some(input) = &step.input {
        bytes.extend_from_slice(input.as_bytes());
    }
    bytes.extend_from_slice(value);
    bytes
}

/// The step in these bytes.
#[must_use]
pub fn decode(mut bytes: Bytes) -> Option<RecordedStep> {
    if bytes.try_get_u8().ok()? != VERSION {
        return None;
    }
    let kind = bytes.try_get_u8().ok()?;
    let flags = bytes.try_get_u8().ok()?;
    let length = usize::try_from(bytes.try_get_u32().ok()?).ok()?;
    if flags & !HAS_INPUT != 0 || bytes.len() < length {
        return None;
    }
    let name = String::from_utf8(bytes.split_to(length).into()).ok()?;
    let mut input = None;
    if flags & HAS_INPUT != 0 {
        let mut digest = [0; 32];
        bytes.try_copy_to_slice(&mut digest).ok()?;
        input = Some(Fingerprint::from_bytes(digest));
    }
    Some(RecordedStep::new(name, input, of_kind(kind, bytes)?))
}

#[cfg(test)]
mod tests {
    use idem_core::protocol::Tombstone;
    use proptest::prelude::*;

    use super::*;

    fn result() -> impl Strategy<Value = StoredResult> {
        prop_oneof![
            3 => prop::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| StoredResult::Value(bytes.into())),
            1 => Just(StoredResult::Tombstone(Tombstone::TooLarge)),
            1 => Just(StoredResult::Tombstone(Tombstone::NotEncodable)),
            1 => Just(StoredResult::Tombstone(Tombstone::Exhausted)),
        ]
    }

    prop_compose! {
        fn step()(name in ".{0,12}", input: Option<[u8; 32]>, result in result()) -> RecordedStep {
            RecordedStep::new(name, input.map(Fingerprint::from_bytes), result)
        }
    }

    proptest! {
        #[test]
        fn a_step_comes_back_as_it_was_and_no_two_share_their_bytes(one in step(), other in step()) {
            let bytes = encode(&one);
            prop_assert_eq!(decode(bytes.clone().into()), Some(one.clone()));
            prop_assert_eq!(bytes == encode(&other), one == other);
        }
    }

    #[test]
    fn what_a_newer_version_wrote_or_was_cut_is_no_step() {
        let step = RecordedStep::new(
            "charge".into(),
            Some(Fingerprint::from_bytes([7; 32])),
            StoredResult::Tombstone(Tombstone::TooLarge),
        );
        let whole = encode(&step);
        for length in 0..whole.len() {
            assert_eq!(decode(Bytes::copy_from_slice(&whole[..length])), None, "{length} bytes");
        }
        for (place, byte) in [(0, 2), (1, 0), (1, 5), (2, 2), (7, 0xff)] {
            let mut changed = whole.clone();
            changed[place] = byte;
            assert_eq!(decode(changed.into()), None, "byte {place}");
        }
    }
}
