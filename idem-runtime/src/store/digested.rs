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
use idem_core::{Key, RecordKey};

/// A store in which a key stands as the HMAC-SHA-256 of scope and key, in hexadecimal digits: what
/// [`StoreExt::digest_keys`](crate::StoreExt::digest_keys) gives. Feature `encryption`.
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

    /// A permutation of this record's fingerprints. A store compares them, so equal ones must stay equal,
    /// and what was read must be what was written: a cipher, on each half by itself, as no two digests
    /// have a half in common.
    fn permutation(&self, name: &RecordKey) -> Aes256 {
        let key = self.hmac(&["idem fingerprint 1", name.scope().as_str(), name.key().as_str()]);
        Aes256::new((&*key).into())
    }
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
        let mut name = String::with_capacity(64);
        for byte in *digest {
            // Writing to a string does not fail.
            let _ = write!(name, "{byte:02x}");
        }
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
    use idem_core::Scope;

    fn digest(scope: &str, key: &str) -> String {
        let key = RecordKey::new(Scope::new(scope.to_owned()).unwrap(), Key::new(key).unwrap());
        KeyDigests::under(&[7; 32]).name(&key).unwrap().key().as_str().to_owned()
    }

    /// By another implementation: Python's `hmac`.
    #[test]
    fn a_digest_is_the_hmac_sha_256_of_the_framed_scope_and_key() {
        assert_eq!(
            digest("payments.charge", "order/42"),
            "d43dacc13689561c4932755d1b3ce215e9a4975e3872140bead883863192cf80"
        );
    }

    #[test]
    fn scope_and_key_do_not_flow_into_each_other() {
        assert_ne!(digest("ab", "c"), digest("a", "bc"));
    }

    #[test]
    fn the_secret_is_overwritten_when_it_is_dropped() {
        fn overwritten<T: ZeroizeOnDrop>() {}
        // An HMAC is two of these, one fed with the secret from within and one from without.
        overwritten::<Sha256>();
        overwritten::<Aes256>();
    }
}
