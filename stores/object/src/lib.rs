//! Records as objects of an object store, or as files of a folder.
//!
//! Owns the requests to the object store, and the files and locks of a folder. [`idem_store_kit::cas`]
//! decides about each operation, takes the declared clock skew into account, and retries.

mod bucket;
mod folder;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;

use idem_core::StoreError;
use idem_store_kit::cas::{CasSettings, CasStore};
use idem_store_kit::own_runtime;

use bucket::Bucket;
use folder::Folder;

/// Upper limit for an object, in bytes. It is low, because each step, renewal and result writes the whole
/// record.
const MAX_OBJECT_BYTES: usize = 8 * 1_024 * 1_024;

/// A store in a bucket of an object store with conditional writes: S3, Google Cloud Storage, Azure. Feature
/// `object`.
///
/// The first call of a key makes two writes (claim, complete), and one more for each step and each renewal. A
/// replay is one read if the process expects a result, otherwise a refused write and a read. The process
/// remembers up to 8,192 keys with a result, and expects a result for each of them. For other keys, it
/// expects a result if most of its recent claims of such keys found a result.
///
/// # Clock
///
/// An object store has no clock that a condition can use. The store uses the clocks of the calling machines
/// for leases and expiry. These clocks must not differ by more than the declared
/// [`clock_skew`](BucketStoreBuilder::clock_skew). The store adds this time to the end of each lease and to
/// the expiry of each record. If the clocks differ by more, another worker may take over the claim of a live
/// worker early. The late result of that live worker is still refused.
///
/// # Purge
///
/// `object_store` offers no delete on a condition. So [`purge`](idem_core::Store::purge) empties the objects
/// of expired records, and tags them `idem=expired`. Give the bucket a lifecycle rule that deletes the
/// objects with this tag. No other rule may delete objects of the store.
///
/// # Runtime
///
/// A separate thread drives the connections, and sends the renewals and releases. So a body keeps its lease
/// even if it blocks its thread.
#[derive(Clone)]
pub struct BucketStore(Arc<CasStore<Bucket>>);

/// A store in a folder of this machine, with a file for each record. Use it in development and tests, in
/// place of a [`BucketStore`]. On one host, `SqliteStore` is faster. Feature `object`.
///
/// Several processes may share a folder. Every write is flushed to the disk before it is acknowledged.
#[derive(Clone)]
pub struct FolderStore(Arc<CasStore<Folder>>);

idem_store_kit::store_by!(BucketStore, 0);
idem_store_kit::store_by!(FolderStore, 0);

impl BucketStore {
    /// A store of the objects whose names begin with `prefix/`.
    ///
    /// # Errors
    ///
    /// As [`BucketStoreBuilder::connect`].
    pub async fn connect(objects: Arc<dyn ObjectStore>, prefix: &str) -> Result<Self, StoreError> {
        Self::builder(objects, prefix).connect().await
    }

    /// Sets up a store of the objects whose names begin with `prefix/`.
    pub fn builder(objects: Arc<dyn ObjectStore>, prefix: &str) -> BucketStoreBuilder {
        BucketStoreBuilder { objects, prefix: prefix.into(), settings: CasSettings::default() }
    }
}

/// The settings for a new [`BucketStore`].
#[derive(Clone)]
#[must_use]
pub struct BucketStoreBuilder {
    objects: Arc<dyn ObjectStore>,
    prefix: String,
    settings: CasSettings,
}

impl BucketStoreBuilder {
    /// How much the clocks of the calling machines may differ; 1 s unless set. Another worker can take over a
    /// claim only when this time has passed after the end of the claim's lease.
    pub const fn clock_skew(mut self, skew: Duration) -> Self {
        self.settings.clock_skew = skew;
        self
    }

    /// How long one operation may take, with all its requests and retries; 5 s unless set. After this time,
    /// the operation fails, and its outcome may be unknown.
    pub const fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.settings.operation_timeout = timeout;
        self
    }

    /// Checks that the object store obeys the conditions of writes, and builds the store. The check makes
    /// four writes to a separate object, and then deletes this object.
    ///
    /// # Errors
    ///
    /// `Configuration` if the object store ignores the conditions, or refuses this client; `Unavailable` or
    /// `OutcomeUnknown` if it does not answer.
    pub async fn connect(self) -> Result<BucketStore, StoreError> {
        let Self { objects, prefix, settings } = self;
        let bucket = Bucket::new(objects, &prefix);
        let checked = own_runtime::apart(async move { bucket.check(settings.operation_timeout).await });
        Ok(BucketStore(CasStore::new(checked.await?, settings)))
    }
}

impl FolderStore {
    /// A store in this folder. Creates the folder if it does not exist.
    ///
    /// # Errors
    ///
    /// `Configuration` if the folder cannot be created.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, StoreError> {
        // All callers have this machine's clock.
        let settings = CasSettings { clock_skew: Duration::ZERO, ..CasSettings::default() };
        Ok(Self(CasStore::new(Folder::open(folder.into())?, settings)))
    }
}

impl fmt::Debug for BucketStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketStoreBuilder").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl fmt::Debug for BucketStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let objects = self.0.service.objects.to_string();
        f.debug_struct("BucketStore").field("objects", &objects).finish_non_exhaustive()
    }
}

impl fmt::Debug for FolderStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FolderStore").field("folder", &self.0.service.0).finish_non_exhaustive()
    }
}
