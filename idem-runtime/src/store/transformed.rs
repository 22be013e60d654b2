//! Any store, with what it holds changed on the way in and changed back on the way out.
//!
//! Owns how a record's name, fingerprint, result and steps pass through. What becomes of each is the
//! [`Transform`]'s; leases, fences and all else are the store's, and pass as they are.

use std::fmt;

use bytes::Bytes;

use crate::error::StoreError;
use idem_core::RecordKey;
use idem_core::inspection::Inspection;
use idem_core::listing::{List, Listed, Page};
use idem_core::protocol::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Fingerprint, Record, RecordStep, RecordStepAnswer,
    RecordedStep, Release, ReleaseAnswer, Renew, RenewAnswer, Resolution, ResolveAnswer, State, StoredResult,
    Verdict,
};
use idem_core::{Store, Waiters};

/// Which bytes of a record these are.
#[derive(Clone, Copy)]
#[cfg_attr(
    not(feature = "encryption"),
    allow(dead_code, reason = "only what is sealed is bound to its place")
)]
pub(super) enum Part<'a> {
    /// Its result.
    Result(Verdict),
    /// The result of a step.
    Step {
        /// How many steps are before it.
        position: u32,
        /// What the body calls it.
        name: &'a str,
        /// What must not change under this name.
        input: Option<Fingerprint>,
    },
}

/// What becomes of a record on its way into a store, and on its way back.
pub(super) trait Transform: Clone + Send + Sync + 'static {
    /// What the store is called with it.
    const NAME: &'static str;

    /// The name under which the store has the record.
    fn name(&self, key: &RecordKey) -> Result<RecordKey, StoreError> {
        Ok(key.clone())
    }

    /// What the store has in the place of a fingerprint; equal for equal ones of the record of this
    /// name, and only for them.
    fn hide(&self, _name: &RecordKey, print: Fingerprint) -> Fingerprint {
        print
    }

    /// The fingerprint in whose place the store has this one.
    fn reveal(&self, _name: &RecordKey, print: Fingerprint) -> Fingerprint {
        print
    }

    /// What the store has in the place of these bytes. Of a step it is the same each time: that is how the
    /// store tells a step that is asked again.
    fn pack(&self, _name: &RecordKey, _part: Part<'_>, plain: &Bytes) -> Result<Bytes, StoreError> {
        Ok(plain.clone())
    }

    /// The bytes in whose place the store has these.
    fn unpack(&self, _name: &RecordKey, _part: Part<'_>, stored: Bytes) -> Result<Bytes, StoreError> {
        Ok(stored)
    }

    /// The largest result that may be packed, where the store takes at most `inner`.
    fn max_result_bytes(&self, inner: Option<usize>) -> Option<usize> {
        inner
    }

    /// Where those who wait for a key meet: with those of the store itself, if its keys are the same.
    fn waiters<'a>(&'a self, inner: &'a Waiters) -> &'a Waiters {
        inner
    }
}

/// A store behind another one's face: see [`Store`] for what makes one.
///
/// Clones share the store and its settings.
#[derive(Clone)]
pub struct Transformed<S, T> {
    inner: S,
    transform: T,
}

impl<S, T> Transformed<S, T> {
    pub(super) const fn new(inner: S, transform: T) -> Self {
        Self { inner, transform }
    }

    #[cfg(feature = "encryption")]
    pub(super) const fn transform(&self) -> &T {
        &self.transform
    }

    #[cfg(feature = "encryption")]
    pub(super) fn change(self, change: impl FnOnce(T) -> T) -> Self {
        Self { inner: self.inner, transform: change(self.transform) }
    }
}

impl<S, T> Transformed<S, T> {
    fn pack(
        &self,
        name: &RecordKey,
        part: Part<'_>,
        result: &StoredResult,
    ) -> Result<StoredResult, StoreError>
    where
        S: Store,
        T: Transform,
    {
        match result {
            StoredResult::Value(plain) => {
                if let Some(most) = self.transform.max_result_bytes(self.inner.max_result_bytes())
                    && plain.len() > most
                {
                    return Err(StoreError::too_large(plain.len(), most));
                }
                Ok(StoredResult::Value(self.transform.pack(name, part, plain)?))
            }
            StoredResult::Tombstone(_) => Ok(result.clone()),
        }
    }

    fn unpack(
        &self,
        name: &RecordKey,
        part: Part<'_>,
        result: StoredResult,
    ) -> Result<StoredResult, StoreError>
    where
        T: Transform,
    {
        match result {
            StoredResult::Value(stored) => {
                Ok(StoredResult::Value(self.transform.unpack(name, part, stored)?))
            }
            StoredResult::Tombstone(_) => Ok(result),
        }
    }

    fn unpack_step(
        &self,
        name: &RecordKey,
        position: usize,
        step: RecordedStep,
    ) -> Result<RecordedStep, StoreError>
    where
        T: Transform,
    {
        // No store has so many.
        let position = u32::try_from(position).unwrap_or(u32::MAX);
        let part = Part::Step { position, name: &step.name, input: step.input };
        let result = self.unpack(name, part, step.result)?;
        let input = step.input.map(|print| self.transform.reveal(name, print));
        Ok(RecordedStep::new(step.name, input, result))
    }

    fn unpack_record(&self, name: &RecordKey, record: Record) -> Result<Record, StoreError>
    where
        T: Transform,
    {
        let verdict = if record.state == State::Failed { Verdict::Failed } else { Verdict::Completed };
        let unpacked = |result| self.unpack(name, Part::Result(verdict), result);
        let mut record = record;
        let result = record.result.take().map(unpacked).transpose()?;
        let numbered = std::mem::take(&mut record.steps).into_iter().enumerate();
        let steps = numbered
            .map(|(position, step)| self.unpack_step(name, position, step))
            .collect::<Result<_, StoreError>>()?;
        let fingerprint = record.fingerprint.map(|print| self.transform.reveal(name, print));
        Ok(record.with_result(result).with_steps(steps).with_fingerprint(fingerprint))
    }
}

impl<S: Store, T: Transform> Store for Transformed<S, T> {
    async fn claim(&self, key: &RecordKey, request: &Claim) -> Result<ClaimAnswer, StoreError> {
        let name = self.transform.name(key)?;
        let fingerprint = request.fingerprint.map(|print| self.transform.hide(&name, print));
        match self.inner.claim(&name, &request.clone().with_fingerprint(fingerprint)).await? {
            ClaimAnswer::Replay(replay) => {
                let result = self.unpack(&name, Part::Result(replay.verdict), replay.result.clone())?;
                Ok(ClaimAnswer::Replay(replay.with_result(result)))
            }
            other => Ok(other),
        }
    }

    async fn renew(&self, key: &RecordKey, request: &Renew) -> Result<RenewAnswer, StoreError> {
        self.inner.renew(&self.transform.name(key)?, request).await
    }

    async fn record_step(
        &self,
        key: &RecordKey,
        request: &RecordStep,
    ) -> Result<RecordStepAnswer, StoreError> {
        let name = self.transform.name(key)?;
        let RecordStep { position, step, .. } = request;
        let input = step.input.map(|print| self.transform.hide(&name, print));
        let part = Part::Step { position: *position, name: &step.name, input };
        let result = self.pack(&name, part, &step.result)?;
        let step = RecordedStep::new(step.name.clone(), input, result);
        self.inner.record_step(&name, &request.clone().with_step(step)).await
    }

    async fn complete(&self, key: &RecordKey, request: &Complete) -> Result<CompleteAnswer, StoreError> {
        let name = self.transform.name(key)?;
        let result = self.pack(&name, Part::Result(request.verdict), &request.result)?;
        self.inner.complete(&name, &request.clone().with_result(result)).await
    }

    async fn release(&self, key: &RecordKey, request: &Release) -> Result<ReleaseAnswer, StoreError> {
        self.inner.release(&self.transform.name(key)?, request).await
    }

    async fn resolve(&self, key: &RecordKey, resolution: &Resolution) -> Result<ResolveAnswer, StoreError> {
        let name = self.transform.name(key)?;
        let Some((verdict, result)) = resolution.recorded() else {
            return self.inner.resolve(&name, resolution).await;
        };
        let result = self.pack(&name, Part::Result(verdict), result)?;
        self.inner.resolve(&name, &resolution.clone().with_result(result)).await
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        self.inner.forget(&self.transform.name(key)?).await
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        let name = self.transform.name(key)?;
        let record = self.inner.get(&name).await?;
        record.map(|record| self.unpack_record(&name, record)).transpose()
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        self.inner.purge(limit).await
    }

    /// Names, steps and sizes are those of what lies in the store: what cannot be unpacked is no reason
    /// to keep the rest from an operator.
    async fn list(&self, request: &List) -> Result<Page, StoreError> {
        let mut page = self.inner.list(request).await?;
        for Listed { key, record, .. } in &mut page.records {
            record.fingerprint = record.fingerprint.map(|print| self.transform.reveal(key, print));
        }
        Ok(page)
    }

    async fn inspect(&self) -> Result<Inspection, StoreError> {
        self.inner.inspect().await
    }

    fn max_result_bytes(&self) -> Option<usize> {
        self.transform.max_result_bytes(self.inner.max_result_bytes())
    }

    fn waiters(&self) -> &Waiters {
        self.transform.waiters(self.inner.waiters())
    }
}

impl<S: fmt::Debug, T: Transform> fmt::Debug for Transformed<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple(T::NAME).field(&self.inner).finish()
    }
}
