//! Tests that a third-party store that was written against the first version of the contract still compiles and works.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use idem_core::protocol::{
    self, Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Record, Release, ReleaseAnswer, Renew,
    RenewAnswer, Resolution, ResolveAnswer, Timestamp, Transition,
};
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

    fn step<A>(
        &self,
        key: &RecordKey,
        step: impl FnOnce(Option<&Record>, Fence, Timestamp) -> Transition<A>,
    ) -> A {
        let mut held = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let (records, floor) = &mut *held;
        let Transition { write, answer, .. } = step(records.get(key), *floor, self.now());
        if let Some(record) = write {
            records.insert(key.clone(), record);
        }
        answer
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
    async fn claim(&self, key: &RecordKey, request: &Claim) -> Result<ClaimAnswer, StoreError> {
        Ok(self.step(key, |record, floor, now| protocol::claim(record, floor, request, now)))
    }

    async fn renew(&self, key: &RecordKey, request: &Renew) -> Result<RenewAnswer, StoreError> {
        Ok(self.step(key, |record, _, now| protocol::renew(record, request, now)))
    }

    async fn complete(&self, key: &RecordKey, request: &Complete) -> Result<CompleteAnswer, StoreError> {
        Ok(self.step(key, |record, _, now| protocol::complete(record, request, now)))
    }

    async fn release(&self, key: &RecordKey, request: &Release) -> Result<ReleaseAnswer, StoreError> {
        Ok(self.step(key, |record, _, now| protocol::release(record, request, now)))
    }

    async fn resolve(&self, key: &RecordKey, resolution: &Resolution) -> Result<ResolveAnswer, StoreError> {
        Ok(self.step(key, |record, _, now| protocol::resolve(record, resolution, now)))
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        let now = self.now();
        let gone = self.delete(1, |other, _| other == key);
        Ok(gone.iter().any(|record| protocol::is_live(record, now)))
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        let live = |record: &&Record, now| protocol::is_live(record, now);
        Ok(self.step(key, |record, _, now| Transition::new(None, record.filter(|r| live(r, now)).cloned())))
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        let now = self.now();
        Ok(self.delete(limit, |_, record| !protocol::is_live(record, now)).len())
    }
}

/// Whether a check is about a feature that came after the first version.
fn is_of_later(check: &Check) -> bool {
    matches!(check.theme(), "steps" | "listing") || check.name().contains("step")
}

#[test]
fn a_store_of_the_first_version_passes_the_checks_of_what_it_does() {
    let subject = || async { Subject::new(TheirStore::new(), Profile::tokio_clock()) };
    let broken: Vec<_> = all().iter().filter(|check| check.run(subject).is_err()).collect();
    let of_first: Vec<_> =
        broken.iter().filter(|check| !is_of_later(check)).map(|check| check.name()).collect();
    assert!(of_first.is_empty(), "{of_first:?}");
    assert!(!broken.is_empty(), "it was not asked for steps");
}
