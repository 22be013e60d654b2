//! A store as its service uses it, with the keys that decrypt results and the secret that makes key digests.

use idem_core::RecordKey;
use idem_runtime::{DynStore, Store};
use idem_wrappers::{DigestedKeys, KeyRing, Layers, StoreExt as _};
use tokio::sync::OnceCell;

use crate::error::Result;

/// A store and its service's keys.
#[derive(Clone)]
pub struct Access {
    /// The store. Its records have their stored names, in which a digest may replace the key. With a key
    /// ring, this store reads and writes results as the service does.
    pub store: DynStore,
    /// The same store, which also reads results that are not encrypted.
    pub(crate) lenient: DynStore,
    bare: DynStore,
    ring: Option<KeyRing>,
    names: Option<DigestedKeys<DynStore>>,
    layers: OnceCell<Layers>,
}

impl Access {
    /// Access to this store. If the service makes digests of its keys or encrypts its results, pass the store
    /// without those layers. Pass the encryption keys to [`with_key_ring`](Self::with_key_ring), and the
    /// secret of the digests to [`with_key_secret`](Self::with_key_secret).
    pub fn new<S: Store>(store: S) -> Self {
        let bare = DynStore::new(store);
        Self {
            store: bare.clone(),
            lenient: bare.clone(),
            bare,
            ring: None,
            names: None,
            layers: OnceCell::new(),
        }
    }

    /// Reads and writes results under the service's encryption keys. With `accept_plain`, it also reads
    /// results that were recorded before encryption was switched on.
    #[must_use]
    pub fn with_key_ring(mut self, ring: KeyRing, accept_plain: bool) -> Self {
        let sealed = self.bare.clone().encrypted(ring.clone()).without_mark();
        self.lenient = DynStore::new(sealed.clone().accept_plain());
        self.store = if accept_plain { self.lenient.clone() } else { DynStore::new(sealed) };
        self.ring = Some(ring);
        self
    }

    /// Finds records by their keys in a store whose service makes digests of its keys under this secret.
    #[must_use]
    pub fn with_key_secret(mut self, secret: &[u8; 32]) -> Self {
        self.names = Some(self.bare.clone().digest_keys(secret).without_mark());
        self
    }

    /// The layers that the service has around the store, according to the store's marks.
    ///
    /// # Errors
    ///
    /// The store fails, or the service uses other keys than the given ones.
    pub async fn layers(&self) -> Result<Layers> {
        self.layers.get_or_try_init(|| self.read_layers()).await.copied()
    }

    async fn read_layers(&self) -> Result<Layers> {
        let layers = Layers::of(&self.bare).await?;
        if let Some(ring) = &self.ring {
            self.bare.clone().encrypted(ring.clone()).without_mark().is_marked().await?;
        }
        if let Some(names) = &self.names {
            names.is_marked().await?;
        }
        Ok(layers)
    }

    /// Whether results are read and written under a key ring.
    #[must_use]
    pub const fn has_ring(&self) -> bool {
        self.ring.is_some()
    }

    /// Whether the secret of the key digests was given. With the secret, records can be found by their keys.
    #[must_use]
    pub(crate) const fn knows_names(&self) -> bool {
        self.names.is_some()
    }

    /// The stored name of a record: the name itself, or the name with a digest in place of the key.
    ///
    /// # Errors
    ///
    /// None at present, because every digest is a valid key.
    pub fn stored(&self, name: &RecordKey) -> Result<RecordKey> {
        match &self.names {
            Some(names) if !name.scope().is_reserved() => Ok(names.stored_name(name)?),
            _ => Ok(name.clone()),
        }
    }

    /// Whether logs or the command show `digest` for the record with this stored name.
    #[must_use]
    pub(crate) fn has_digest(&self, stored: &RecordKey, digest: &str) -> bool {
        stored.digest().to_string() == digest
            || self.names.as_ref().is_some_and(|names| names.has_digest(stored, digest))
    }
}
