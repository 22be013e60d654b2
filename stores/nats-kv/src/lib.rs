//! Records in a key-value bucket of NATS JetStream.
//!
//! Owns the connection and the requests to the bucket. [`idem_store_kit::cas`] decides about each operation,
//! takes the declared clock skew into account, and retries.

mod bucket;
mod builder;

use std::fmt;
use std::sync::Arc;

use idem_core::StoreError;
use idem_store_kit::cas::CasStore;

use bucket::Bucket;
pub use builder::NatsKvStoreBuilder;

/// A store in a key-value bucket of NATS JetStream. Feature `nats-kv`.
///
/// The first call of a key makes two requests (claim, complete), and one more for each step and each renewal.
/// A replay is one read if the process expects a result, otherwise a refused write and a read. The process
/// remembers up to 8,192 keys with a result, and expects a result for each of them. For other keys, it
/// expects a result if most of its recent claims of such keys found a result. A read of a record goes to the
/// leader of the bucket, because the replicas may be behind.
///
/// # Clock
///
/// JetStream has no clock that a condition can use. The store uses the clocks of the calling machines for
/// leases and expiry. These clocks must not differ by more than the declared
/// [`clock_skew`](NatsKvStoreBuilder::clock_skew). The store adds this time to the end of each lease and to
/// the expiry of each record. If the clocks differ by more, another worker may take over the claim of a live
/// worker early. The late result of that live worker is still refused.
///
/// # Runtime
///
/// A separate thread drives the connection, and sends the renewals and releases. So a body keeps its lease
/// even if it blocks its thread.
#[derive(Clone)]
pub struct NatsKvStore(Arc<CasStore<Bucket>>);

idem_store_kit::store_by!(NatsKvStore, 0);

impl NatsKvStore {
    /// Connects to a bucket on a server. The URL is `nats://host:port` or `tls://host:port`, or several such
    /// URLs, separated by commas. If the bucket does not exist, the store creates it in a file, with one
    /// replica. If the server supports an expiry for each key, the new bucket uses it.
    ///
    /// # Errors
    ///
    /// As [`NatsKvStoreBuilder::connect`].
    pub async fn connect(url: &str, bucket: &str) -> Result<Self, StoreError> {
        Self::builder(url, bucket).connect().await
    }

    /// Sets up how to connect to a server and a bucket.
    pub fn builder(url: &str, bucket: &str) -> NatsKvStoreBuilder {
        NatsKvStoreBuilder::new(url, bucket)
    }
}

impl fmt::Debug for NatsKvStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsKvStore").field("bucket", &self.0.service.name()).finish_non_exhaustive()
    }
}
