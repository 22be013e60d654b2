//! Results encrypted on their way into any store.
//!
//! Owns the envelope (the stored form of an encrypted result) and the key ring. This module changes nothing
//! of a record except the bytes of its result and of the results of its steps.

use std::fmt;
use std::sync::Arc;

use aes_gcm_siv::aead::{AeadInOut as _, KeyInit as _};
use aes_gcm_siv::{Aes256GcmSiv, Nonce, Tag};
use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::marks::{Layer, Mark};
use super::transformed::{Part, Transform, Transformed};
use idem_core::protocol::{ResultFormat, Verdict};
use idem_core::{RecordKey, Store, StoreError, hex};

/// The magic number of an envelope; its last byte is the version. No JSON, no text and no Zstandard frame
/// begins with it.
const MAGIC: [u8; 4] = [0xab, b'i', b'd', 1];

/// The layer's name in the marks that it leaves in the store: see `marks`.
pub(super) const LAYER: &str = "encrypted";

const ID: usize = 4;
const NONCE: usize = 12;
const TAG: usize = 16;

/// How much larger an envelope is than its content.
const OVERHEAD: usize = MAGIC.len() + ID + NONCE + TAG;

/// The largest input of the cipher: RFC 8452, section 6.
const LARGEST: usize = if usize::BITS < 64 { usize::MAX } else { 1 << 36 };

/// The keys of an [`Encrypted`] store: one key that writes and reads, and other keys that only read.
///
/// Each key has a number. Every encrypted result shows the number of its key. Never give the number of one
/// key to another key. A key is 32 bytes from a cryptographic generator, not a password. It is overwritten in
/// memory when the last clone of the ring is dropped, and `Debug` does not show it.
///
/// ```
/// use idem::{KeyRing, MemoryStore, StoreExt as _};
///
/// # let (this_year, last_year) = ([7; 32], [6; 32]);
/// let keys = KeyRing::new(2026, &this_year).and_reads(2025, &last_year)?;
/// let store = MemoryStore::new().encrypted(keys);
/// # let _ = store;
/// # Ok::<(), idem::StoreError>(())
/// ```
#[derive(Clone)]
pub struct KeyRing {
    writes: NumberedKey,
    only_read: Vec<NumberedKey>,
}

#[derive(Clone)]
struct NumberedKey {
    id: u32,
    cipher: Aes256GcmSiv,
}

impl NumberedKey {
    fn new(id: u32, key: &[u8; 32]) -> Self {
        Self { id, cipher: Aes256GcmSiv::new(key.into()) }
    }

    /// The check value is the tag of an empty text, with associated data that belong to no record. It shows
    /// whether two keys are different, and reveals nothing else.
    fn mark(&self) -> Option<Mark> {
        let sealed = self.cipher.encrypt_inout_detached(
            &Nonce::from([0; NONCE]),
            b"idem key check 1",
            (&mut [][..]).into(),
        );
        Some(Mark { number: self.id, check: hex(&sealed.ok()?) })
    }
}

impl KeyRing {
    /// A ring with one key, which writes and reads.
    #[must_use]
    pub fn new(id: u32, key: &[u8; 32]) -> Self {
        Self { writes: NumberedKey::new(id, key), only_read: Vec::new() }
    }

    /// The same ring with one more key, which only reads.
    ///
    /// # Errors
    ///
    /// A [`StoreErrorKind::Configuration`](idem_core::StoreErrorKind) if the ring already has a key with this
    /// number.
    pub fn and_reads(mut self, id: u32, key: &[u8; 32]) -> Result<Self, StoreError> {
        if self.cipher(id).is_some() {
            return Err(StoreError::configuration(format!(
                "two keys of the ring have the number {id}; give each key a number of its own"
            )));
        }
        self.only_read.push(NumberedKey::new(id, key));
        Ok(self)
    }

    fn keys(&self) -> impl Iterator<Item = &NumberedKey> {
        std::iter::once(&self.writes).chain(&self.only_read)
    }

    fn cipher(&self, id: u32) -> Option<&Aes256GcmSiv> {
        self.keys().find(|key| key.id == id).map(|key| &key.cipher)
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.keys().map(|key| key.id).collect::<Vec<_>>();
        f.debug_struct("KeyRing").field("ids", &ids).finish_non_exhaustive()
    }
}

/// A store that keeps results encrypted: the return type of
/// [`StoreExt::encrypted`](crate::StoreExt::encrypted). Feature `encryption`.
///
/// Values, terminal errors and the results of steps are encrypted with AES-256-GCM-SIV (RFC 8452). Each
/// encrypted result is bound to its scope, key and position, so it cannot take the place of another result.
/// Scopes, keys, the names of steps, fingerprints, states, times and sizes stay readable.
/// [`StoreExt::digest_keys`](crate::StoreExt::digest_keys) hides keys and fingerprints.
///
/// Encryption proves that someone with the encryption key wrote a result under this name. It does not prove
/// that the result is the newest: anyone who can write to the store can put back an older record of the same
/// name, or delete the record.
///
/// Compress before you encrypt: `store.encrypted(keys).compressed()`.
pub type Encrypted<S> = Transformed<S, Encryption>;

/// The transform of an [`Encrypted`] store.
#[derive(Clone)]
pub struct Encryption {
    ring: Arc<KeyRing>,
    accept_plain: bool,
}

impl Encryption {
    pub(super) fn with(ring: KeyRing) -> Self {
        Self { ring: Arc::new(ring), accept_plain: false }
    }
}

impl<S: Store> Encrypted<S> {
    /// The same store, which also reads results that were written without encryption.
    ///
    /// Use this only until the unencrypted results have expired. As long as you use it, anyone who can write
    /// to the store can put any result there.
    #[must_use]
    pub fn accept_plain(mut self) -> Self {
        self.transform.accept_plain = true;
        self
    }
}

impl Transform for Encryption {
    const NAME: &'static str = "Encrypted";
    const LAYER: Option<Layer> = Some(Layer {
        name: LAYER,
        differs: "its results are under other encryption keys than this process has; check the key ring, \
                  or give a service with keys of its own another table or prefix (docs: wrappers)",
    });

    fn marks(&self) -> Vec<Mark> {
        self.ring.keys().filter_map(NumberedKey::mark).collect()
    }

    fn pack(&self, name: &RecordKey, part: Part<'_>, plain: &Bytes) -> Result<Bytes, StoreError> {
        let NumberedKey { id, cipher } = &self.ring.writes;
        let bound = bound_to(name, part);
        let nonce = nonce(part, &bound);
        let mut sealed = Vec::with_capacity(OVERHEAD + plain.len());
        sealed.extend_from_slice(&MAGIC);
        sealed.extend_from_slice(&id.to_be_bytes());
        sealed.extend_from_slice(&nonce);
        let begin = sealed.len();
        sealed.extend_from_slice(plain);
        let tag = cipher
            .encrypt_inout_detached(&Nonce::from(nonce), &bound, (&mut sealed[begin..]).into())
            .map_err(|_| StoreError::too_large(plain.len(), LARGEST))?;
        sealed.extend_from_slice(&tag);
        Ok(sealed.into())
    }

    fn unpack(&self, name: &RecordKey, part: Part<'_>, stored: Bytes) -> Result<Bytes, StoreError> {
        let Some(rest) = stored.strip_prefix(&MAGIC) else {
            return match ResultFormat::of(&stored) {
                Some(ResultFormat::Sealed) => Err(StoreError::corrupt_record(
                    "its result is encrypted in a format of a later version of this library; update this process",
                )),
                _ if self.accept_plain => Ok(stored),
                _ => Err(StoreError::corrupt_record(
                    "its result is not encrypted; if it is from before encryption was switched on, use \
                     `accept_plain` until the last such record is past its ttl",
                )),
            };
        };
        let envelope = || {
            let (id, rest) = rest.split_first_chunk::<ID>()?;
            let (nonce, rest) = rest.split_first_chunk::<NONCE>()?;
            let (sealed, tag) = rest.split_last_chunk::<TAG>()?;
            Some((u32::from_be_bytes(*id), nonce, sealed, tag))
        };
        let Some((id, nonce, sealed, tag)) = envelope() else {
            return Err(StoreError::corrupt_record(
                "its encrypted result is cut off; find out who wrote it, then forget the key",
            ));
        };
        let Some(cipher) = self.ring.cipher(id) else {
            return Err(StoreError::corrupt_record(format!(
                "its result is encrypted with key {id}, a key that is not in the ring; put it back with `and_reads`"
            )));
        };
        let mut plain = sealed.to_vec();
        cipher
            .decrypt_inout_detached(
                &Nonce::from(*nonce),
                &bound_to(name, part),
                plain.as_mut_slice().into(),
                &Tag::from(*tag),
            )
            .map_err(|_| {
                StoreError::corrupt_record(format!(
                    "its result is not what was encrypted here with key {id}; check that the ring has the same key \
                     under that number, and find out who can write to the store"
                ))
            })?;
        Ok(plain.into())
    }

    fn max_result_bytes(&self, inner: Option<usize>) -> Option<usize> {
        inner.map(|most| most.saturating_sub(OVERHEAD))
    }
}

/// The nonce of a result is random. The nonce of a step is derived from the record's key and the step's
/// position, name and input, so that a repeated request has the same bytes. The cipher tolerates a repeated
/// nonce: the repetition only reveals that the same bytes were recorded at the same position.
fn nonce(part: Part<'_>, bound: &[u8]) -> [u8; NONCE] {
    match part {
        Part::Result(_) => rand::random(),
        Part::Step { .. } => {
            let hash = Sha256::new_with_prefix(b"idem step nonce 1").chain_update(bound).finalize();
            let mut nonce = [0; NONCE];
            nonce.copy_from_slice(&hash[..NONCE]);
            nonce
        }
    }
}

/// The associated data: the record and the part of it to which the bytes belong. The length of each value
/// precedes the value.
fn bound_to(name: &RecordKey, part: Part<'_>) -> Vec<u8> {
    let mut data = Vec::with_capacity(128);
    let mut put = |bytes: &[u8]| {
        data.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
        data.extend_from_slice(bytes);
    };
    put(name.scope().as_str().as_bytes());
    put(name.key().as_str().as_bytes());
    match part {
        Part::Result(Verdict::Completed) => put(b"completed"),
        Part::Result(Verdict::Failed) => put(b"failed"),
        Part::Step { position, name, input } => {
            put(b"step");
            put(&position.to_be_bytes());
            put(name.as_bytes());
            put(input.as_ref().map_or(&[][..], |input| input.as_bytes()));
        }
    }
    data
}
