//! Keys and fingerprints that say nothing to who can read the store.
//!
//! Owns what stands in their place. Scopes, results and all else pass as they are.

use std::fmt::Write as _;

use aes::Aes256;
use aes::cipher::{Array, BlockCipherDecrypt as _, BlockCipherEncrypt as _, KeyInit as _};
use hmac::{Hmac, Mac as _};
use sha2::Sha256;
use zeroize::Zeroizing;

use super::transformed::{Transform, Transformed};
use crate::error::StoreError;
use idem_core::Waiters;
use idem_core::protocol::Fingerprint;
use idem_core::{Key, RecordKey, Scope};

/// How many bytes of a name are of the digest that logs show, and how many of the key.
const OF_DIGEST: usize = 8;
const OF_KEY: usize = 24;

/// A store in which a key stands as an HMAC-SHA-256 of scope and key, in hexadecimal digits: what
/// [`StoreExt::digest_keys`](crate::StoreExt::digest_keys) gives. Feature `encryption`.
///
/// The first 16 digits are of an HMAC of the [digest](RecordKey::digest) that logs show, the other 48 of an HMAC of the key: who
/// has the secret finds the record of a log line, and nobody else learns more.
///
/// Fingerprints, of calls and of steps, are changed under the same secret, each record's in a way of its
/// own: an amount or a card number cannot be guessed back from the store. Scopes, the names of steps,
/// states, times and sizes stay readable, and so do results: see
/// [`StoreExt::encrypted`](crate::StoreExt::encrypted).
///
/// Nothing leads from what the store has back to a key, not even the secret: a walk through the store
/// gives digests. The secret cannot be rotated either. Under another one every key is a new key, and its
/// body runs again; keep the secret as long as the records.
///
/// Those who wait for a key meet by the key itself, in this store and its clones: make one and clone it.
pub type DigestedKeys<S> = Transformed<S, KeyDigests>;

impl<S> DigestedKeys<S> {
    /// The name under which the store within has the record of `key`. For operators.
    ///
    /// # Errors
    ///
    /// None today: every digest can be a key.
    pub fn stored_name(&self, key: &RecordKey) -> Result<RecordKey, StoreError> {
        self.transform().name(key)
    }

    /// Whether the record of this stored name can be the one that logs and errors show as `digest`, 16 hexadecimal digits.
    #[must_use]
    pub fn has_digest(&self, stored: &RecordKey, digest: &str) -> bool {
        let begin = self.transform().of_digest(stored.scope(), &digest.to_ascii_lowercase());
        stored.key().as_str().starts_with(&begin)
    }
}

/// What makes a store one of [`DigestedKeys`].
#[derive(Clone)]
pub struct KeyDigests {
    /// Fed with the secret and nothing else.
    keyed: Hmac<Sha256>,
    /// Of its own: the same key without digests is another record.
    waiters: Waiters,
}

impl KeyDigests {
    pub(super) fn under(secret: &[u8; 32]) -> Self {
        // RFC 2104: a key that is shorter than a block is filled up with zeros.
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

    /// What the name of a record with this digest begins with.
    fn of_digest(&self, scope: &Scope, digest: &str) -> String {
        hex(&self.hmac(&["idem digest 1", scope.as_str(), digest])[..OF_DIGEST])
    }

    /// A permutation of this record's fingerprints. A store compares them, so equal ones must stay equal,
    /// and what was read must be what was written: a cipher, on each half by itself, as no two digests
    /// have a half in common.
    fn permutation(&self, name: &RecordKey) -> Aes256 {
        let key = self.hmac(&["idem fingerprint 1", name.scope().as_str(), name.key().as_str()]);
        Aes256::new((&*key).into())
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Both halves of a fingerprint, each through `change`.
fn halves(print: Fingerprint, change: impl Fn(&mut Array<u8, aes::cipher::consts::U16>)) -> Fingerprint {
    let mut bytes = *print.as_bytes();
    for half in bytes.as_chunks_mut::<16>().0 {
        change(half.into());
    }
    Fingerprint::from_bytes(bytes)
}

impl Transform for KeyDigests {
    const NAME: &'static str = "DigestedKeys";

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

    fn digest(scope: &str, key: &str) -> String {
        let key = RecordKey::new(Scope::new(scope.to_owned()).unwrap(), Key::new(key).unwrap());
        KeyDigests::under(&[7; 32]).name(&key).unwrap().key().as_str().to_owned()
    }

    /// By another implementation: Python's `hmac`.
    #[test]
    fn a_digest_is_two_hmac_sha_256_of_framed_parts() {
        assert_eq!(
            digest("payments.charge", "order/42"),
            "4cb357304ea76fc1d43dacc13689561c4932755d1b3ce215e9a4975e3872140b"
        );
    }

    #[test]
    fn scope_and_key_do_not_flow_into_each_other() {
        assert_ne!(digest("ab", "c"), digest("a", "bc"));
    }

    #[test]
    fn a_stored_name_is_found_by_the_digest_of_a_log_line_under_the_same_secret_only() {
        let name = |key: &str| RecordKey::new(Scope::new("payments.charge").unwrap(), Key::new(key).unwrap());
        let store = DigestedKeys::new(crate::MemoryStore::new(), KeyDigests::under(&[7; 32]));
        let stored = store.stored_name(&name("order/42")).unwrap();
        let digest = name("order/42").digest().to_string();
        assert!(store.has_digest(&stored, &digest) && store.has_digest(&stored, &digest.to_uppercase()));
        assert!(!store.has_digest(&stored, &name("order/43").digest().to_string()));
        let other = DigestedKeys::new(crate::MemoryStore::new(), KeyDigests::under(&[8; 32]));
        assert!(!other.has_digest(&stored, &digest));
        assert!(!stored.key().as_str().contains(&digest));
    }

    #[test]
    fn the_secret_is_overwritten_when_it_is_dropped() {
        fn overwritten<T: ZeroizeOnDrop>() {}
        // An HMAC is two of these, one fed with the secret from within and one from without.
        overwritten::<Sha256>();
        overwritten::<Aes256>();
    }
}
