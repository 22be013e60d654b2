//! A store that answers at once and keeps nothing, so that only the engine is measured.

use std::time::Duration;

use idem::protocol::{
    Answer, ClaimAnswer, CompleteAnswer, Fence, Grant, Record, RecordStepAnswer, ReleaseAnswer, RenewAnswer,
    Replay, Request, ResolveAnswer, StoredResult, Timestamp, Verdict,
};
use idem::{RecordKey, Store, StoreError};

/// Grants every claim, or replays one result.
#[derive(Clone)]
pub struct Instant {
    answer: ClaimAnswer,
}

impl Instant {
    /// A store for which every key is new.
    #[must_use]
    pub fn granting() -> Self {
        let grant = Grant::new(Fence::new(1), 1, false, Duration::from_secs(30));
        Self { answer: ClaimAnswer::Granted(grant) }
    }

    /// A store in which every key has this result, in JSON.
    #[must_use]
    pub fn replaying(json: &'static [u8]) -> Self {
        let replay =
            Replay::new(Verdict::Completed, StoredResult::Value(json.into()), 1, Timestamp::default(), None);
        Self { answer: ClaimAnswer::Replay(replay) }
    }
}

impl Store for Instant {
    async fn apply(&self, _: &RecordKey, request: Request) -> Result<Answer, StoreError> {
        Ok(match request {
            Request::Claim(_) => self.answer.clone().into(),
            Request::Renew(_) => RenewAnswer::Held.into(),
            Request::RecordStep(_) => RecordStepAnswer::Recorded.into(),
            Request::Complete(_) => CompleteAnswer::Done.into(),
            Request::Release(_) => ReleaseAnswer::Released.into(),
            _ => ResolveAnswer::Absent.into(),
        })
    }
    async fn forget(&self, _: &RecordKey) -> Result<bool, StoreError> {
        Ok(false)
    }
    async fn get(&self, _: &RecordKey) -> Result<Option<Record>, StoreError> {
        Ok(None)
    }
    async fn purge(&self, _: usize) -> Result<usize, StoreError> {
        Ok(0)
    }
}
