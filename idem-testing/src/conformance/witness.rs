//! The store as the checks use it: with faults on demand, and a history of all operations.

use std::fmt::Debug;
use std::sync::Arc;

use tokio::time::Instant;

use super::history::History;
use crate::FaultStore;
use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::listing::{List, Page};
use idem_core::protocol::{Answer, Claim, Complete, Owner, Record, RecordStep, Release, Request};
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
    async fn apply(&self, key: &RecordKey, request: Request) -> Result<Answer, StoreError> {
        self.watch(words(&request), request.owner(), Some(key), self.faults.apply(key, request)).await
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

/// The request, as the history shows it.
fn words(request: &Request) -> String {
    match request {
        Request::Claim(request) => {
            let Claim { lease, ttl, on_crash, max_attempts, fingerprint, recovers, .. } = request;
            let mut words = format!("claim for {lease:?}, kept {ttl:?}, {on_crash:?}");
            if let Some(most) = max_attempts {
                words += &format!(", at most {most} attempts");
            }
            if *recovers {
                words += ", recovers";
            }
            if let Some(fingerprint) = fingerprint {
                words += &format!(", {fingerprint:?}");
            }
            words
        }
        Request::Renew(request) => format!("renew fence {} for {:?}", request.fence, request.lease),
        Request::RecordStep(RecordStep { fence, position, step, .. }) => {
            format!("record under fence {fence} at {position} {step:?}")
        }
        Request::Complete(Complete { fence, verdict, result, ttl, .. }) => {
            format!("complete fence {fence} as {verdict:?} with {result:?}, kept {ttl:?}")
        }
        Request::Release(Release { fence, cause, retry_after, .. }) => {
            format!("release fence {fence} as {cause:?}, due in {retry_after:?}")
        }
        Request::Resolve(resolution) => format!("resolve as {resolution:?}"),
        other => format!("{other:?}"),
    }
}
