//! The crate `idempotent` on any of its stores.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use idempotent::fingerprint::{DefaultFingerprintStrategy, FingerprintStrategy as _};
use idempotent::store::{IdempotencyStore, InsertResult};
use idempotent::{CachedResponse, IdempotencyEntry, IdempotencyKey, Metadata};

use crate::arm::{Anything, Arm, RECEIPT, over, right};

const TTL: Duration = Duration::from_secs(3_600);

/// An arm that uses a store of the crate in the same way as the crate's own layer does.
pub(crate) fn arm<S>(store: S) -> Arm
where
    S: IdempotencyStore + Send + Sync + 'static,
    S::Error: std::error::Error + Send + Sync + 'static,
{
    let store = Arc::new(store);
    let one = |is_fresh: bool| {
        over(&store, move |store, key| async move { right(claimed(&*store, key).await? == is_fresh) })
    };
    Arm { name: "crate `idempotent` 0.3", fresh: one(true), replay: one(false), work: None }
}

/// Makes one call, and returns whether it was the first call with this key.
async fn claimed<S>(store: &S, key: String) -> Anything<bool>
where
    S: IdempotencyStore,
    S::Error: std::error::Error + Send + Sync + 'static,
{
    let key = IdempotencyKey::new(format!("idempotent/{key}"))?;
    let print = DefaultFingerprintStrategy.compute("charge", b"order");
    let entry = IdempotencyEntry::new(print, TTL);
    match store.try_insert(&key, entry.clone()).await? {
        InsertResult::Claimed { fencing_token } => {
            let body = Bytes::from_static(RECEIPT.as_bytes());
            let response = CachedResponse { status_code: 200, metadata: Metadata::default(), body };
            store.complete(&key, entry.complete(response), fencing_token).await?;
            Ok(true)
        }
        InsertResult::Exists(_) => Ok(false),
    }
}
