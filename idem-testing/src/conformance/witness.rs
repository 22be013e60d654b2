//! The store as the checks use it: with faults on demand, and a history of all operations.

use std::fmt::Debug;
use std::sync::Arc;

use tokio::time::Instant;

use super::history::History;
use crate::FaultStore;
use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::listing::{List, Page};
use idem_core::protocol::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Owner, Record, RecordStep, RecordStepAnswer, Release,
    ReleaseAnswer, Renew, RenewAnswer, Resolution, ResolveAnswer,
};
use idem_core::{Store, Waiters};
use idem_runtime::DynStore;

/// A store that is watched.
#[derive(Clone)]
pub(super) struct Witness {
    pub(super) faults: FaultStore<DynStore>,
    history: Arc<History>,
    started: Instant,
}

impl Witness {
    pub(super) fn new(store: DynStore, history: &Arc<History>) -> Self {
        Self { faults: FaultStore::new(store), history: history.clone(), started: Instant::now() }
    }

    pub(super) fn note(&self, what: impl Into<String>) {
        self.history.note(self.started.elapsed(), what.into());
    }

    async fn watch<A: Debug>(
        &self,
        what: String,
        owner: Option<Owner>,
        key: Option<&RecordKey>,
        operation: impl Future<Output = Result<A, StoreError>>,
    ) -> Result<A, StoreError> {
        if self.history.is_closed() {
            // The check was given up, and the rest of it must not continue.
            return std::future::pending().await;
        }
        let asked = self.history.asked(self.started.elapsed(), &what, owner, key);
        let answer = operation.await;
        match &answer {
            Ok(answer) => self.history.answered(asked, answer),
            Err(error) => self.history.answered(asked, error),
        }
        answer
    }
}

impl Store for Witness {
    async fn claim(&self, key: &RecordKey, request: &Claim) -> Result<ClaimAnswer, StoreError> {
        let Claim { lease, ttl, on_crash, max_attempts, fingerprint, recovers, .. } = request;
        let mut what = format!("claim for {lease:?}, kept {ttl:?}, {on_crash:?}");
        if let Some(most) = max_attempts {
            what += &format!(", at most {most} attempts");
        }
        if *recovers {
            what += ", recovers";
        }
        if let Some(fingerprint) = fingerprint {
            what += &format!(", {fingerprint:?}");
        }
        self.watch(what, Some(request.owner), Some(key), self.faults.claim(key, request)).await
    }

    async fn renew(&self, key: &RecordKey, request: &Renew) -> Result<RenewAnswer, StoreError> {
        let what = format!("renew fence {} for {:?}", request.fence, request.lease);
        self.watch(what, Some(request.owner), Some(key), self.faults.renew(key, request)).await
    }

    async fn record_step(
        &self,
        key: &RecordKey,
        request: &RecordStep,
    ) -> Result<RecordStepAnswer, StoreError> {
        let RecordStep { fence, position, step, .. } = request;
        let what = format!("record under fence {fence} at {position} {step:?}");
        self.watch(what, Some(request.owner), Some(key), self.faults.record_step(key, request)).await
    }

    async fn complete(&self, key: &RecordKey, request: &Complete) -> Result<CompleteAnswer, StoreError> {
        let Complete { fence, verdict, result, ttl, .. } = request;
        let what = format!("complete fence {fence} as {verdict:?} with {result:?}, kept {ttl:?}");
        self.watch(what, Some(request.owner), Some(key), self.faults.complete(key, request)).await
    }

    async fn release(&self, key: &RecordKey, request: &Release) -> Result<ReleaseAnswer, StoreError> {
        let Release { fence, cause, retry_after, .. } = request;
        let what = format!("release fence {fence} as {cause:?}, due in {retry_after:?}");
        self.watch(what, Some(request.owner), Some(key), self.faults.release(key, request)).await
    }

    async fn resolve(&self, key: &RecordKey, resolution: &Resolution) -> Result<ResolveAnswer, StoreError> {
        let what = format!("resolve as {resolution:?}");
        self.watch(what, None, Some(key), self.faults.resolve(key, resolution)).await
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        self.watch("forget".into(), None, Some(key), self.faults.forget(key)).await
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        self.watch("get".into(), None, Some(key), self.faults.get(key)).await
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        self.watch(format!("purge at most {limit}"), None, None, self.faults.purge(limit)).await
    }

    async fn list(&self, request: &List) -> Result<Page, StoreError> {
        let what = format!("list {:?}, looking at {}", request.states, request.limit);
        self.watch(what, None, None, self.faults.list(request)).await
    }

    fn max_result_bytes(&self) -> Option<usize> {
        self.faults.max_result_bytes()
    }

    fn waiters(&self) -> &Waiters {
        self.faults.waiters()
    }
}
