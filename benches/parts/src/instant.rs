//! A store that answers at once and keeps nothing, so that only the engine is measured.

use std::time::Duration;

use idem::listing::{List, Page};
use idem::protocol::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Grant, Record, RecordStep, RecordStepAnswer,
    Release, ReleaseAnswer, Renew, RenewAnswer, Replay, Resolution, ResolveAnswer, StoredResult, Timestamp,
    Verdict,
};
use idem::{RecordKey, Store, StoreError, Waiters};

/// Grants every claim, or replays one result.
#[derive(Clone)]
pub struct Instant {
    answer: ClaimAnswer,
    waiters: Waiters,
}

impl Instant {
    /// A store for which every key is new.
    #[must_use]
    pub fn granting() -> Self {
        let grant = Grant::new(Fence::new(1), 1, false, Duration::from_secs(30));
        Self { answer: ClaimAnswer::Granted(grant), waiters: Waiters::default() }
    }

    /// A store in which every key has this result, in JSON.
    #[must_use]
    pub fn replaying(json: &'static [u8]) -> Self {
        let replay =
            Replay::new(Verdict::Completed, StoredResult::Value(json.into()), 1, Timestamp::default(), None);
        Self { answer: ClaimAnswer::Replay(replay), waiters: Waiters::default() }
    }
}

impl Store for Instant {
    async fn claim(&self, _: &RecordKey, _: &Claim) -> Result<ClaimAnswer, StoreError> {
        Ok(self.answer.clone())
    }
    async fn renew(&self, _: &RecordKey, _: &Renew) -> Result<RenewAnswer, StoreError> {
        Ok(RenewAnswer::Held)
    }
    async fn record_step(&self, _: &RecordKey, _: &RecordStep) -> Result<RecordStepAnswer, StoreError> {
        Ok(RecordStepAnswer::Recorded)
    }
    async fn complete(&self, _: &RecordKey, _: &Complete) -> Result<CompleteAnswer, StoreError> {
        Ok(CompleteAnswer::Done)
    }
    async fn release(&self, _: &RecordKey, _: &Release) -> Result<ReleaseAnswer, StoreError> {
        Ok(ReleaseAnswer::Released)
    }
    async fn resolve(&self, _: &RecordKey, _: &Resolution) -> Result<ResolveAnswer, StoreError> {
        Ok(ResolveAnswer::Absent)
    }
    async fn forget(&self, _: &RecordKey) -> Result<bool, StoreError> {
        Ok(false)
    }
    async fn get(&self, _: &RecordKey) -> Result<Option<Record>, StoreError> {
        Ok(None)
    }
    async fn list(&self, _: &List) -> Result<Page, StoreError> {
        Ok(Page::new(Timestamp::default()))
    }
    async fn purge(&self, _: usize) -> Result<usize, StoreError> {
        Ok(0)
    }
    fn max_result_bytes(&self) -> Option<usize> {
        None
    }
    fn waiters(&self) -> &Waiters {
        &self.waiters
    }
}
