//! Tests of a store that has only what the contract demands: no steps, and no listing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use idem_core::protocol::{self, Answer, Fence, Record, Request, Timestamp, Transition};
use idem_core::{RecordKey, Store, StoreError};
use idem_testing::conformance::{Check, Profile, Subject, all};
use tokio::time::Instant;

/// A store in one process, without steps and without listing.
#[derive(Clone)]
struct TheirStore {
    start: Instant,
    /// The records, and the highest fence of the deleted ones.
    records: Arc<Mutex<(HashMap<RecordKey, Record>, Fence)>>,
}

impl TheirStore {
    fn new() -> Self {
        Self { start: Instant::now(), records: Arc::default() }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_700_000_000_000_000).after(self.start.elapsed())
    }

    fn delete(&self, most: usize, which: impl Fn(&RecordKey, &Record) -> bool) -> Vec<Record> {
        let mut held = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let (records, floor) = &mut *held;
        let keys = records.iter().filter(|(key, record)| which(key, record)).map(|(key, _)| key.clone());
        let keys: Vec<_> = keys.take(most).collect();
        let gone: Vec<_> = keys.iter().filter_map(|key| records.remove(key)).collect();
        *floor = gone.iter().map(|record| record.fence).max().unwrap_or_default().max(*floor);
        gone
    }
}

impl Store for TheirStore {
    async fn apply(&self, key: &RecordKey, request: Request) -> Result<Answer, StoreError> {
        if matches!(request, Request::RecordStep(_)) {
            return Err(StoreError::configuration("it does not record steps"));
        }
        let mut held = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let (records, floor) = &mut *held;
        let Transition { write, answer, .. } =
            protocol::apply(records.get(key), *floor, &request, self.now());
        if let Some(record) = write {
            records.insert(key.clone(), record);
        }
        Ok(answer)
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        let now = self.now();
        let gone = self.delete(1, |other, _| other == key);
        Ok(gone.iter().any(|record| protocol::is_live(record, now)))
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        let (held, now) = (self.records.lock().unwrap_or_else(PoisonError::into_inner), self.now());
        Ok(held.0.get(key).filter(|record| protocol::is_live(record, now)).cloned())
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        let now = self.now();
        Ok(self.delete(limit, |_, record| !protocol::is_live(record, now)).len())
    }
}

/// Whether a check is about what this store leaves out.
fn is_left_out(check: &Check) -> bool {
    matches!(check.theme(), "steps" | "histories" | "listing") || check.name().contains("step")
}

#[test]
fn a_store_without_steps_and_listing_passes_all_other_checks() {
    let subject = || async { Subject::new(TheirStore::new(), Profile::tokio_clock()) };
    let broken: Vec<_> = all().iter().filter(|check| check.run(subject).is_err()).collect();
    let others: Vec<_> =
        broken.iter().filter(|check| !is_left_out(check)).map(|check| check.name()).collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(!broken.is_empty(), "it was not asked for steps");
}
