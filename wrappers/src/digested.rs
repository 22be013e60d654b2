//! Keys and fingerprints that reveal nothing to anyone who can read the store.
//!
//! Owns the values that replace keys and fingerprints. Scopes, results and everything else pass unchanged.

use aes::Aes256;
use aes::cipher::{Array, BlockCipherDecrypt as _, BlockCipherEncrypt as _, KeyInit as _};
use hmac::{Hmac, Mac as _};
use sha2::Sha256;
use zeroize::Zeroizing;

use super::marks::{Layer, Mark};
use super::transformed::{Transform, Transformed};
use idem_core::StoreError;
use idem_core::Waiters;
use idem_core::protocol::Fingerprint;
use idem_core::{Key, RecordKey, Scope, hex};

/// How many bytes of a stored name come from the digest that logs show, and how many from the key.
const OF_DIGEST: usize = 8;
const OF_KEY: usize = 24;

/// The layer's name in the marks that it leaves in the store: see `marks`.
pub(super) const LAYER: &str = "digested";

/// A store in which an HMAC-SHA-256 of scope and key, in hexadecimal digits, replaces each key: the return
/// type of [`StoreExt::digest_keys`](crate::StoreExt::digest_keys). Feature `encryption`.
///
/// The first 16 digits come from an HMAC of the [digest](RecordKey::digest) that logs show, and the other 48
/// digits come from an HMAC of the key. Anyone who has the secret can find the record of a log line, and
/// nobody else learns anything about the key.
///
/// Fingerprints of calls and of steps are encrypted under the same secret, differently for each record. So
/// nobody can guess an amount or a card number from the store. Scopes, the names of steps, states, times and
/// sizes stay readable, and so do results: see [`StoreExt::encrypted`](crate::StoreExt::encrypted).
///
/// Nobody can compute a key from its stored name, not even with the secret, so a walk through the store
/// returns digests. The secret cannot be rotated. With another secret, every key is a new key, and its body
/// runs again. So keep the secret as long as the records.
///
/// Callers that wait for the same key share one poll, but only if they use this store or a clone of it. So
/// make one store and clone it.
pub type DigestedKeys<S> = Transformed<S, KeyDigests>;

impl<S> DigestedKeys<S> {
    /// The name under which the inner store has the record of `key`. For operators.
    ///
    /// # Errors
    ///
    /// None at present, because every digest is a valid key.
    pub fn stored_name(&self, key: &RecordKey) -> Result<RecordKey, StoreError> {
        self.transform.name(key)
    }

    /// Whether the record with this stored name can be the record that logs and errors show as `digest` (16
    /// hexadecimal digits).
    #[must_use]
    pub fn has_digest(&self, stored: &RecordKey, digest: &str) -> bool {
        let begin = self.transform.of_digest(stored.scope(), &digest.to_ascii_lowercase());
        stored.key().as_str().starts_with(&begin)
    }
}

/// The transform of a [`DigestedKeys`] store.
#[derive(Clone)]
pub struct KeyDigests {
    /// An HMAC with the secret as its key, before any input.
    keyed: Hmac<Sha256>,
    /// Separate from the waiters of the inner store, because the same key names another record there.
    waiters: Waiters,
}

impl KeyDigests {
    pub(super) fn under(secret: &[u8; 32]) -> Self {
        // RFC 2104: a key that is shorter than a block is padded with zeros.
        let mut block = Zeroizing::new([0; 64]);
        block[..secret.len()].copy_from_slice(secret);
        Self { keyed: Hmac::new((&*block).into()), waiters: Waiters::default() }
    }

    /// The HMAC-SHA-256 of these parts, framed by their lengths.
    fn hmac(&self, parts: &[&str]) -> Zeroizing<[u8; 32]> {
        let mut mac = self.keyed.clone();
        for part in parts {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part.as_bytes());
        }
        Zeroizing::new(mac.finalize().into_bytes().into())
    }

    /// The beginning of the stored name of a record with this digest.
    fn of_digest(&self, scope: &Scope, digest: &str) -> String {
        hex(&self.hmac(&["idem digest 1", scope.as_str(), digest])[..OF_DIGEST])
    }

    /// The cipher for this record's fingerprints. A store compares fingerprints, so equal fingerprints must
    /// stay equal, and reading must return what was written. The cipher may be applied to each half
    /// separately, because in practice two different fingerprints have no half in common.
    fn permutation(&self, name: &RecordKey) -> Aes256 {
        let key = self.hmac(&["idem fingerprint 1", name.scope().as_str(), name.key().as_str()]);
        Aes256::new((&*key).into())
    }
}

/// Applies `change` to each half of a fingerprint.
fn halves(print: Fingerprint, change: impl Fn(&mut Array<u8, aes::cipher::consts::U16>)) -> Fingerprint {
    let mut bytes = *print.as_bytes();
    for half in bytes.as_chunks_mut::<16>().0 {
        change(half.into());
    }
    Fingerprint::from_bytes(bytes)
}

impl Transform for KeyDigests {
    const NAME: &'static str = "DigestedKeys";
    const LAYER: Option<Layer> = Some(Layer {
        name: LAYER,
        differs: "its keys are digests under another secret than this process has, which would find no record; \
                  check the secret, or give a service with a secret of its own another table or prefix (docs: wrappers)",
    });

    fn marks(&self) -> Vec<Mark> {
        vec![Mark { number: 0, check: hex(&self.hmac(&["idem key check 1"])[..16]) }]
    }

    fn name(&self, key: &RecordKey) -> Result<RecordKey, StoreError> {
        let digest = self.hmac(&["idem key 1", key.scope().as_str(), key.key().as_str()]);
        let mut name = self.of_digest(key.scope(), &key.digest().to_string());
        name += &hex(&digest[..OF_KEY]);
        let name = Key::new(name).map_err(|error| StoreError::configuration(error.to_string()))?;
        Ok(RecordKey::new(key.scope().clone(), name))
    }

    fn hide(&self, name: &RecordKey, print: Fingerprint) -> Fingerprint {
        let cipher = self.permutation(name);
        halves(print, |half| cipher.encrypt_block(half))
    }

    fn reveal(&self, name: &RecordKey, print: Fingerprint) -> Fingerprint {
        let cipher = self.permutation(name);
        halves(print, |half| cipher.decrypt_block(half))
    }

    fn waiters<'a>(&'a self, _inner: &'a Waiters) -> &'a Waiters {
        &self.waiters
    }
}

#[cfg(test)]
mod tests {
    use zeroize::ZeroizeOnDrop;

    use super::*;

    fn name(key: &str) -> RecordKey {
        RecordKey::new(Scope::new("payments.charge").unwrap(), Key::new(key).unwrap())
    }

    /// The expected value comes from another implementation, Python's `hmac`.
    #[test]
    fn a_digest_is_two_hmac_sha_256_of_framed_parts() {
        assert_eq!(
            KeyDigests::under(&[7; 32]).name(&name("order/42")).unwrap().key().as_str(),
            "4cb357304ea76fc1d43dacc13689561c4932755d1b3ce215e9a4975e3872140b"
        );
    }

    #[test]
    fn a_stored_name_is_found_by_the_digest_of_a_log_line_under_the_same_secret_only() {
        let store = DigestedKeys::new(idem_runtime::MemoryStore::new(), KeyDigests::under(&[7; 32]));
        let stored = store.stored_name(&name("order/42")).unwrap();
        let digest = name("order/42").digest().to_string();
        assert!(store.has_digest(&stored, &digest) && store.has_digest(&stored, &digest.to_uppercase()));
        assert!(!store.has_digest(&stored, &name("order/43").digest().to_string()));
        let other = DigestedKeys::new(idem_runtime::MemoryStore::new(), KeyDigests::under(&[8; 32]));
        assert!(!other.has_digest(&stored, &digest));
        assert!(!stored.key().as_str().contains(&digest));
    }

    #[test]
    fn the_secret_is_overwritten_when_it_is_dropped() {
        fn overwritten<T: ZeroizeOnDrop>() {}
        // An HMAC contains two SHA-256 states: one for the inner key and one for the outer key.
        overwritten::<Sha256>();
        overwritten::<Aes256>();
    }
}
