//! Results compressed on their way into any store.
//!
//! Owns the format. It changes nothing of a record but the bytes of its result, and of its steps'.

use std::fmt;
use std::io::Read as _;

use bytes::Bytes;

use super::{Store, Waiters};
use crate::error::StoreError;
use crate::inspection::Inspection;
use crate::key::RecordKey;
use crate::listing::{List, Page};
use crate::protocol::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Record, RecordStep, RecordStepAnswer, RecordedStep,
    Release, ReleaseAnswer, Renew, RenewAnswer, Replay, Resolution, ResolveAnswer, StoredResult,
};

/// What a Zstandard frame begins with: RFC 8878, section 3.1.1. No JSON does.
const FRAME: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Shorter results do not get smaller.
const WORTH_IT: usize = 256;

const LEVEL: i32 = 3;

/// A store that keeps results in Zstandard frames where that makes them smaller. Feature `zstd`.
///
/// Results that were stored without it stay readable with it, not the other way round: switch it on
/// in every reader before the first writer.
#[derive(Clone)]
pub struct Compressed<S> {
    inner: S,
    largest: usize,
}

impl<S: Store> Compressed<S> {
    pub(super) const fn new(inner: S, largest: usize) -> Self {
        Self { inner, largest }
    }

    fn pack(&self, result: &StoredResult) -> Result<StoredResult, StoreError> {
        let StoredResult::Value(plain) = result else { return Ok(result.clone()) };
        if plain.len() > self.largest {
            return Err(StoreError::too_large(plain.len(), self.largest));
        }
        // What only looks like a frame must become one, or it would be unpacked.
        let must = plain.starts_with(&FRAME);
        if plain.len() < WORTH_IT && !must {
            return Ok(result.clone());
        }
        match zstd::bulk::compress(plain, LEVEL) {
            Ok(frame) if must || frame.len() < plain.len() => Ok(StoredResult::Value(frame.into())),
            Ok(_) => Ok(result.clone()),
            Err(error) if must => {
                Err(StoreError::unavailable("the result cannot be compressed").with_source(error))
            }
            Err(_) => Ok(result.clone()),
        }
    }

    fn unpack(&self, result: StoredResult) -> Result<StoredResult, StoreError> {
        let StoredResult::Value(stored) = &result else { return Ok(result) };
        if !stored.starts_with(&FRAME) {
            return Ok(result);
        }
        let largest = self.largest;
        let broken = |error: std::io::Error| {
            StoreError::corrupt_record(
                "its result is no whole Zstandard frame; forget the key, or find out who wrote it",
            )
            .with_source(error)
        };
        let mut plain = Vec::new();
        let reader = zstd::Decoder::with_buffer(&**stored).map_err(broken)?;
        reader.take((largest as u64).saturating_add(1)).read_to_end(&mut plain).map_err(broken)?;
        if plain.len() > largest {
            return Err(StoreError::corrupt_record(format!(
                "its result is larger than {largest} bytes when it is unpacked; allow more with `compressed_up_to`"
            )));
        }
        Ok(StoredResult::Value(Bytes::from(plain)))
    }
}

impl<S: Store> Store for Compressed<S> {
    async fn claim(&self, key: &RecordKey, request: &Claim) -> Result<ClaimAnswer, StoreError> {
        match self.inner.claim(key, request).await? {
            ClaimAnswer::Replay(replay) => {
                let result = self.unpack(replay.result)?;
                Ok(ClaimAnswer::Replay(Replay { result, ..replay }))
            }
            other => Ok(other),
        }
    }

    async fn renew(&self, key: &RecordKey, request: &Renew) -> Result<RenewAnswer, StoreError> {
        self.inner.renew(key, request).await
    }

    async fn record_step(
        &self,
        key: &RecordKey,
        request: &RecordStep,
    ) -> Result<RecordStepAnswer, StoreError> {
        let step = RecordedStep { result: self.pack(&request.step.result)?, ..request.step.clone() };
        self.inner.record_step(key, &RecordStep { step, ..request.clone() }).await
    }

    async fn complete(&self, key: &RecordKey, request: &Complete) -> Result<CompleteAnswer, StoreError> {
        let result = self.pack(&request.result)?;
        self.inner.complete(key, &Complete { result, ..request.clone() }).await
    }

    async fn release(&self, key: &RecordKey, request: &Release) -> Result<ReleaseAnswer, StoreError> {
        self.inner.release(key, request).await
    }

    async fn resolve(&self, key: &RecordKey, resolution: &Resolution) -> Result<ResolveAnswer, StoreError> {
        match resolution {
            Resolution::Record(verdict, result) => {
                self.inner.resolve(key, &Resolution::Record(*verdict, self.pack(result)?)).await
            }
            Resolution::Release => self.inner.resolve(key, resolution).await,
        }
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        self.inner.forget(key).await
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        let Some(record) = self.inner.get(key).await? else { return Ok(None) };
        let result = record.result.clone().map(|result| self.unpack(result)).transpose()?;
        let unpacked = |step: RecordedStep| Ok(RecordedStep { result: self.unpack(step.result)?, ..step });
        let steps = record.steps.into_iter().map(unpacked).collect::<Result<_, StoreError>>()?;
        Ok(Some(Record { result, steps, ..record }))
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        self.inner.purge(limit).await
    }

    /// Sizes are those of what lies in the store, so compressed.
    async fn list(&self, request: &List) -> Result<Page, StoreError> {
        self.inner.list(request).await
    }

    async fn inspect(&self) -> Result<Inspection, StoreError> {
        self.inner.inspect().await
    }

    fn max_result_bytes(&self) -> Option<usize> {
        Some(self.largest)
    }

    fn waiters(&self) -> &Waiters {
        self.inner.waiters()
    }
}

impl<S: fmt::Debug> fmt::Debug for Compressed<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Compressed").field(&self.inner).finish()
    }
}
