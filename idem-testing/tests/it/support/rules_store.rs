//! A small store with exchangeable rules, to run the conformance kit on a broken protocol. Apart from the
//! rules, the store is correct; it has no listing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use idem_runtime::{RecordKey, Store, StoreError};
use tokio::time::Instant;

use super::protocol::{self, Answer, Fence, Record, Request, Timestamp};
use super::rules::Rules;

/// When this store's clock starts; any date works.
const EPOCH: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

#[derive(Clone)]
pub struct RulesStore {
    inner: Arc<Inner>,
    rules: Rules,
}

struct Inner {
    start: Instant,
    records: Mutex<Records>,
}

#[derive(Default)]
struct Records {
    by_key: HashMap<RecordKey, Record>,
    /// The highest fence of all deleted records.
    floor: Fence,
}

impl Records {
    fn delete(&mut self, key: &RecordKey) -> Option<Record> {
        let record = self.by_key.remove(key)?;
        self.floor = self.floor.max(record.fence);
        Some(record)
    }
}

impl RulesStore {
    pub fn new(rules: Rules) -> Self {
        let inner = Inner { start: Instant::now(), records: Mutex::default() };
        Self { inner: Arc::new(inner), rules }
    }

    fn now(&self) -> Timestamp {
        EPOCH.after(Instant::now().saturating_duration_since(self.inner.start))
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.inner.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for RulesStore {
    async fn apply(&self, key: &RecordKey, request: Request) -> Result<Answer, StoreError> {
        let earlier = if self.rules.claim_is_atomic || !matches!(request, Request::Claim(_)) {
            None
        } else {
            let seen = self.records().by_key.get(key).cloned();
            tokio::task::yield_now().await;
            Some(seen)
        };
        let mut records = self.records();
        let seen = earlier.unwrap_or_else(|| records.by_key.get(key).cloned());
        let step = self.rules.apply(seen.as_ref(), records.floor, &request, self.now());
        if let Some(record) = step.write {
            records.by_key.insert(key.clone(), record);
        }
        Ok(step.answer)
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        let now = self.now();
        Ok(self.records().delete(key).is_some_and(|record| protocol::is_live(&record, now)))
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        let records = self.records();
        let now = self.now();
        Ok(records.by_key.get(key).filter(|record| protocol::is_live(record, now)).cloned())
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        let now = self.now();
        let mut records = self.records();
        let expired = records.by_key.iter().filter(|(_, record)| !(self.rules.is_live)(record, now));
        let keys: Vec<_> = expired.map(|(key, _)| key.clone()).take(limit).collect();
        for key in &keys {
            records.delete(key);
        }
        Ok(keys.len())
    }
}
