//! Fingerprints: SHA-256 over the canonical JSON (RFC 8785) of the value that must not change under a key.

mod ordered;

use serde::Serialize;
use serde_json::{Number, Value, json};
use sha2::{Digest, Sha256};

use idem_core::protocol::Fingerprint;
use ordered::{HASH_SET, Ordered};

/// Above this number, neighbouring integers may be the same double, so RFC 8785 writes them as the same
/// number.
pub(crate) const LARGEST_EXACT: u64 = 1 << 53;

/// An integer with fewer digits is exact as a double.
const DIGITS_OF_LARGEST: usize = 16;

/// Why a value has no fingerprint. It never holds the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FingerprintError {
    /// The value does not serialize to JSON with a canonical form.
    #[error(
        "the fingerprint cannot be made: its value does not serialize to JSON, or holds a number that is not \
         finite or an integer of more than 64 bits (give that as text)"
    )]
    Value,
    /// The value contains a hash set.
    #[error(
        "the fingerprint cannot be made: there is a hash set in its value, and two equal ones serialize in different \
         orders; use a `BTreeSet`, or give its sorted elements"
    )]
    HashSet,
}

impl FingerprintError {
    fn of(error: &impl std::fmt::Display) -> Self {
        if error.to_string().contains(HASH_SET) { Self::HashSet } else { Self::Value }
    }
}

/// The fingerprint of `value`: the SHA-256 of its canonical JSON (RFC 8785).
///
/// RFC 8785 treats every number as a double, and 2^53 and 2^53 + 1 are the same double. Two different amounts
/// must not have the same fingerprint, so an integer above 2^53 or below -2^53 is written with all its
/// digits.
///
/// A hash set is refused, because it has no defined order. The fingerprint covers everything that serializes.
/// So if a deployment adds a field to a struct, a call that is retried after the deployment has another
/// fingerprint.
///
/// # Errors
///
/// [`FingerprintError`] if the value does not serialize to JSON. Also if it contains a hash set, a number
/// that is not finite, or an integer of more than 64 bits.
pub fn fingerprint<T: Serialize + ?Sized>(value: &T) -> Result<Fingerprint, FingerprintError> {
    let mut canonical =
        serde_json_canonicalizer::to_vec(&Ordered(value)).map_err(|error| FingerprintError::of(&error))?;
    if may_hold_large_integer(&canonical) {
        let mut value = serde_json::to_value(value).map_err(|_| FingerprintError::Value)?;
        spell_large_integers(&mut value);
        canonical = serde_json_canonicalizer::to_vec(&value).map_err(|_| FingerprintError::Value)?;
    }
    Ok(Fingerprint::from_bytes(Sha256::digest(canonical).into()))
}

/// Whether the canonical JSON may have lost digits. The result is also `true` for text with many digits.
fn may_hold_large_integer(canonical: &[u8]) -> bool {
    let long = canonical.chunk_by(|one, next| one.is_ascii_digit() == next.is_ascii_digit());
    long.filter(|run| run[0].is_ascii_digit()).any(|run| run.len() >= DIGITS_OF_LARGEST)
        || canonical.windows(2).any(|pair| pair == b"e+")
}

fn spell_large_integers(value: &mut Value) {
    match value {
        Value::Number(number) if is_large_integer(number) => *value = json!({"integer": number.to_string()}),
        Value::Array(values) => values.iter_mut().for_each(spell_large_integers),
        Value::Object(members) => members.values_mut().for_each(spell_large_integers),
        _ => {}
    }
}

fn is_large_integer(number: &Number) -> bool {
    let magnitude = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
    magnitude.is_some_and(|magnitude| magnitude > LARGEST_EXACT)
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;

    #[test]
    fn the_order_of_members_does_not_matter() {
        let one: HashMap<_, _> = [("a", 1), ("b", 2), ("c", 3)].into();
        let other = serde_json::json!({"c": 3, "a": 1, "b": 2});
        assert_eq!(fingerprint(&one), fingerprint(&other));
    }

    #[test]
    fn amounts_beyond_the_precision_of_a_double_stay_apart() {
        assert_ne!(fingerprint(&9_007_199_254_740_992_u64), fingerprint(&9_007_199_254_740_993_u64));
        assert_ne!(fingerprint(&u64::MAX), fingerprint(&(u64::MAX - 1)));
        assert_ne!(fingerprint(&i64::MIN), fingerprint(&(i64::MIN + 1)));
        assert_ne!(fingerprint(&[1, u64::MAX]), fingerprint(&[1, u64::MAX - 1]));
        assert_ne!(
            fingerprint(&json!({"a": {"b": u64::MAX}})),
            fingerprint(&json!({"a": {"b": u64::MAX - 1}}))
        );
        assert_eq!(fingerprint(&u128::from(u64::MAX)), fingerprint(&u64::MAX));
    }

    #[test]
    fn a_number_that_json_cannot_carry_is_an_error_and_not_rounded() {
        assert_eq!(fingerprint(&f64::NAN), Err(FingerprintError::Value));
        assert_eq!(fingerprint(&f64::INFINITY), Err(FingerprintError::Value));
        assert_eq!(fingerprint(&u128::MAX), Err(FingerprintError::Value));
        assert_eq!(fingerprint(&i128::MIN), Err(FingerprintError::Value));
    }

    #[test]
    fn the_canonical_form_of_what_a_double_carries_is_that_of_rfc_8785() {
        let value = json!({"b": [1.0, 1e3, "\u{e9}"], "a": null});
        let expected = Sha256::digest("{\"a\":null,\"b\":[1,1000,\"\u{e9}\"]}");
        assert_eq!(fingerprint(&value), Ok(Fingerprint::from_bytes(expected.into())));
    }

    #[test]
    fn a_hash_set_is_refused_wherever_it_is_and_a_sorted_one_is_not() {
        #[derive(serde::Serialize)]
        struct Order<S> {
            number: u8,
            tags: Option<S>,
        }
        #[derive(serde::Serialize)]
        struct Tags(Vec<HashSet<String>>);
        let tags = || HashSet::from(["a".to_owned(), "b".to_owned()]);
        let refused = Err(FingerprintError::HashSet);
        assert_eq!(fingerprint(&tags()), refused);
        assert_eq!(fingerprint(&(1, &tags())), refused);
        assert_eq!(fingerprint(&Order { number: 1, tags: Some(Box::new(tags())) }), refused);
        assert_eq!(fingerprint(&Tags(vec![tags()])), refused);
        assert_eq!(fingerprint(&HashMap::from([("tags", Box::new(tags()))])), refused);
        let sorted = std::collections::BTreeSet::from_iter(tags());
        assert_eq!(fingerprint(&sorted), fingerprint(&["a", "b"]));
        assert_eq!(
            fingerprint(&Order { number: 1, tags: Some(sorted) }),
            fingerprint(&json!({"number": 1, "tags": ["a", "b"]}))
        );
    }

    #[test]
    fn what_serializes_in_any_other_way_has_the_fingerprint_of_its_json() {
        #[derive(serde::Serialize)]
        enum Shape {
            Unit,
            Newtype(u64),
            Tuple(i8, Option<u8>),
            Struct { text: char },
        }
        let shapes =
            [Shape::Unit, Shape::Newtype(u64::MAX), Shape::Tuple(-1, None), Shape::Struct { text: 'x' }];
        let as_json = serde_json::to_value(&shapes).unwrap();
        assert_eq!(fingerprint(&shapes), fingerprint(&as_json));
        assert_eq!(fingerprint(&(1.5, true, "x", b"y")), fingerprint(&json!([1.5, true, "x", [121]])));
    }
}
