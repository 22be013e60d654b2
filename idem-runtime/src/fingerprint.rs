//! Fingerprints: SHA-256 over the canonical JSON (RFC 8785) of what must not change under a key.

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::protocol::Fingerprint;

/// Why a value has no fingerprint. It never holds the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the fingerprint cannot be made: its value does not serialize to JSON")]
pub struct FingerprintError;

/// The fingerprint of `value`.
///
/// # Errors
///
/// [`FingerprintError`] if it does not serialize to JSON, or holds a number that is not finite.
pub fn fingerprint<T: Serialize + ?Sized>(value: &T) -> Result<Fingerprint, FingerprintError> {
    let canonical = serde_json_canonicalizer::to_vec(&value).map_err(|_| FingerprintError)?;
    Ok(Fingerprint::from_bytes(Sha256::digest(canonical).into()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

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
        assert_ne!(fingerprint(&u128::MAX), fingerprint(&(u128::MAX - 1)));
        let long = "{\"amount\":123456789012345678901234567890}";
        assert_ne!(
            fingerprint(&serde_json::from_str::<serde_json::Value>(long).unwrap()),
            fingerprint(&serde_json::json!({"amount": 1}))
        );
    }

    #[test]
    fn a_number_that_is_not_finite_is_an_error() {
        assert_eq!(fingerprint(&f64::NAN), Err(FingerprintError));
        assert_eq!(fingerprint(&f64::INFINITY), Err(FingerprintError));
    }

    proptest! {
        #[test]
        fn different_integers_have_different_fingerprints(one: u64, offset in 1_u64..10_000) {
            prop_assert_ne!(fingerprint(&one), fingerprint(&one.wrapping_add(offset)));
        }

        #[test]
        fn neighbouring_fields_do_not_run_together(a: String, b: String, c: String, d: String) {
            prop_assume!((&a, &b) != (&c, &d));
            prop_assert_ne!(fingerprint(&(a, b)), fingerprint(&(c, d)));
        }
    }
}
