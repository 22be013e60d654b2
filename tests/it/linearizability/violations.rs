//! A store that is not linearizable; the check must find that.

use idem::protocol::{Answer, Record, Request};
use idem::{MemoryStore, RecordKey, Store, StoreError};

use super::violation;

/// A store whose claim reads first and writes later.
#[derive(Clone)]
struct GetThenSet(MemoryStore);

impl Store for GetThenSet {
    async fn apply(&self, key: &RecordKey, request: Request) -> Result<Answer, StoreError> {
        if matches!(request, Request::Claim(_)) && self.0.get(key).await?.is_none() {
            tokio::task::yield_now().await;
            self.0.forget(key).await?;
        }
        self.0.apply(key, request).await
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        self.0.forget(key).await
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        self.0.get(key).await
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        self.0.purge(limit).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_claim_in_two_steps_is_found_out() {
    assert!(violation(GetThenSet(MemoryStore::new()), 400, 1).await.is_some());
}
