//! Any store, with its data changed on the way in and changed back on the way out.
//!
//! Owns the choice of the data that a [`Transform`] changes: a record's name, fingerprint, result and steps.
//! The [`Transform`] decides how they change. Leases, fences and everything else pass unchanged.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::marks::{self, Layer, Mark, Marks};
use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::inspection::Inspection;
use idem_core::listing::{List, Listed, Page};
use idem_core::protocol::{
    Answer, ClaimAnswer, Fingerprint, Record, RecordStep, RecordedStep, Request, State, StoredResult, Verdict,
};
use idem_core::{Store, Waiters};

/// The part of a record that some bytes belong to.
#[derive(Clone, Copy)]
#[cfg_attr(
    not(feature = "encryption"),
    allow(dead_code, reason = "only what is sealed is bound to its place")
)]
pub(super) enum Part<'a> {
    Result(Verdict),
    /// The result of a step.
    Step {
        /// How many steps are recorded before this step.
        position: u32,
        name: &'a str,
        input: Option<Fingerprint>,
    },
}

/// Changes a record on its way into the inner store, and changes it back on its way out.
pub(super) trait Transform: Clone + Send + Sync + 'static {
    /// The name of the wrapper in `Debug` output.
    const NAME: &'static str;

    /// The layer whose marks are compared, so that a process with wrong keys is refused; `None` for a layer
    /// without keys.
    const LAYER: Option<Layer> = None;

    /// The marks that the store keeps for the layer's keys.
    fn marks(&self) -> Vec<Mark> {
        Vec::new()
    }

    /// The name under which the inner store has the record.
    fn name(&self, key: &RecordKey) -> Result<RecordKey, StoreError> {
        Ok(key.clone())
    }

    /// The stored form of a fingerprint. For one record, two stored forms are equal if and only if the
    /// fingerprints are equal.
    fn hide(&self, _name: &RecordKey, print: Fingerprint) -> Fingerprint {
        print
    }

    /// The fingerprint with this stored form.
    fn reveal(&self, _name: &RecordKey, print: Fingerprint) -> Fingerprint {
        print
    }

    /// The stored form of these bytes. For a step, the form must be the same each time, because the store
    /// compares steps to recognize a repeated request.
    fn pack(&self, _name: &RecordKey, _part: Part<'_>, plain: &Bytes) -> Result<Bytes, StoreError> {
        Ok(plain.clone())
    }

    /// The bytes with this stored form.
    fn unpack(&self, _name: &RecordKey, _part: Part<'_>, stored: Bytes) -> Result<Bytes, StoreError> {
        Ok(stored)
    }

    /// The largest result that [`pack`](Self::pack) may get, in bytes, if the inner store takes results of at
    /// most `inner` bytes.
    fn max_result_bytes(&self, inner: Option<usize>) -> Option<usize> {
        inner
    }

    /// The waiters of the outer store: by default the inner store's waiters. A transform that changes keys
    /// needs its own.
    fn waiters<'a>(&'a self, inner: &'a Waiters) -> &'a Waiters {
        inner
    }
}

/// A store that changes records on their way into another store and back.
///
/// Clones share the store and its settings.
#[derive(Clone)]
pub struct Transformed<S, T> {
    inner: S,
    pub(super) transform: T,
    marks: Arc<Marks>,
}

impl<S, T> Transformed<S, T> {
    pub(super) fn new(inner: S, transform: T) -> Self {
        Self { inner, transform, marks: Marks::new(false) }
    }

    /// The same store, but it neither writes nor checks the marks of its layer when it is first used. For
    /// tools that check them with [`is_marked`](Self::is_marked).
    #[must_use]
    pub fn without_mark(self) -> Self {
        Self { marks: Marks::new(true), ..self }
    }
}

#[allow(private_bounds, reason = "the layers are ours")]
impl<S: Store, T: Transform> Transformed<S, T> {
    /// Whether the store has a mark for one of this layer's keys. A mark is a record that a layer leaves in
    /// the store.
    ///
    /// # Errors
    ///
    /// A [`StoreErrorKind::WrongKeys`](idem_core::StoreErrorKind) if the mark belongs to other keys;
    /// otherwise as [`Store::get`].
    pub async fn is_marked(&self) -> Result<bool, StoreError> {
        let Some(layer) = T::LAYER else { return Ok(false) };
        let marks = self.transform.marks();
        marks::compare(&self.inner, &layer, &marks).await.map(|(_, is_marked)| is_marked)
    }

    /// Refuses a store that was used under other keys. The first use checks the marks. After a success, each
    /// later use only loads a flag.
    async fn agree(&self) -> Result<(), StoreError> {
        let Some(layer) = T::LAYER else { return Ok(()) };
        if self.marks.are_settled() {
            return Ok(());
        }
        let marks = self.transform.marks();
        // Boxed, because otherwise the future of every call would be as large as this one.
        Box::pin(self.marks.look(&self.inner, &layer, &marks)).await
    }

    fn pack(
        &self,
        name: &RecordKey,
        part: Part<'_>,
        result: &StoredResult,
    ) -> Result<StoredResult, StoreError> {
        let StoredResult::Value(plain) = result else { return Ok(result.clone()) };
        if let Some(most) = self.max_result_bytes() {
            result.check_size(most)?;
        }
        Ok(StoredResult::Value(self.transform.pack(name, part, plain)?))
    }

    /// The request as the inner store gets it.
    fn packed(&self, name: &RecordKey, request: Request) -> Result<Request, StoreError> {
        Ok(match request {
            Request::Claim(claim) => {
                let print = claim.fingerprint.map(|print| self.transform.hide(name, print));
                claim.with_fingerprint(print).into()
            }
            Request::RecordStep(RecordStep { owner, fence, position, step, .. }) => {
                let input = step.input.map(|print| self.transform.hide(name, print));
                let part = Part::Step { position, name: &step.name, input };
                let result = self.pack(name, part, &step.result)?;
                RecordStep::new(owner, fence, position, RecordedStep::new(step.name, input, result)).into()
            }
            Request::Complete(complete) => {
                let result = self.pack(name, Part::Result(complete.verdict), &complete.result)?;
                complete.with_result(result).into()
            }
            Request::Resolve(word) => match word.recorded() {
                Some((verdict, result)) => {
                    let result = self.pack(name, Part::Result(verdict), result)?;
                    word.with_result(result).into()
                }
                None => word.into(),
            },
            other => other,
        })
    }

    fn unpack(
        &self,
        name: &RecordKey,
        part: Part<'_>,
        result: StoredResult,
    ) -> Result<StoredResult, StoreError> {
        let StoredResult::Value(stored) = result else { return Ok(result) };
        Ok(StoredResult::Value(self.transform.unpack(name, part, stored)?))
    }

    fn unpack_record(&self, name: &RecordKey, mut record: Record) -> Result<Record, StoreError> {
        let verdict = if record.state == State::Failed { Verdict::Failed } else { Verdict::Completed };
        let unpacked = |result| self.unpack(name, Part::Result(verdict), result);
        let result = record.result.take().map(unpacked).transpose()?;
        let mut steps = Vec::with_capacity(record.steps.len());
        for (position, step) in (0..).zip(std::mem::take(&mut record.steps)) {
            let part = Part::Step { position, name: &step.name, input: step.input };
            let result = self.unpack(name, part, step.result)?;
            let input = step.input.map(|print| self.transform.reveal(name, print));
            steps.push(RecordedStep::new(step.name, input, result));
        }
        let fingerprint = record.fingerprint.map(|print| self.transform.reveal(name, print));
        Ok(record.with_result(result).with_steps(steps).with_fingerprint(fingerprint))
    }
}

impl<S: Store, T: Transform> Store for Transformed<S, T> {
    async fn apply(&self, key: &RecordKey, mut request: Request) -> Result<Answer, StoreError> {
        if marks::is_mark(key) {
            if let (Some(layer), Request::Complete(complete)) = (T::LAYER, &mut request) {
                complete.result = marks::through(layer.name, &complete.result);
            }
            return self.inner.apply(key, request).await;
        }
        // The other requests come from a call whose claim was granted, or need no keys.
        let needs_keys = match &request {
            Request::Claim(_) => true,
            Request::Resolve(word) => word.recorded().is_some(),
            _ => false,
        };
        if needs_keys {
            self.agree().await?;
        }
        let name = self.transform.name(key)?;
        let request = self.packed(&name, request)?;
        match self.inner.apply(&name, request).await? {
            Answer::Claim(ClaimAnswer::Replay(replay)) => {
                let result = self.unpack(&name, Part::Result(replay.verdict), replay.result.clone())?;
                Ok(ClaimAnswer::Replay(replay.with_result(result)).into())
            }
            other => Ok(other),
        }
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        if marks::is_mark(key) {
            return self.inner.forget(key).await;
        }
        self.inner.forget(&self.transform.name(key)?).await
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        if marks::is_mark(key) {
            return self.inner.get(key).await;
        }
        let name = self.transform.name(key)?;
        let record = self.inner.get(&name).await?;
        record.map(|record| self.unpack_record(&name, record)).transpose()
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        self.inner.purge(limit).await
    }

    /// Leaves out marks, the records that layers leave in the store. Names and sizes are as stored, because
    /// an operator must see a record even if its result cannot be unpacked.
    async fn list(&self, request: &List) -> Result<Page, StoreError> {
        let mut page = self.inner.list(request).await?;
        page.records.retain(|listed| !marks::is_mark(&listed.key));
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
