//! The store as the checks use it: with faults on demand, and a history of all operations.

use std::fmt::Debug;
use std::sync::Arc;

use tokio::time::Instant;

use super::history::History;
use crate::FaultStore;
use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::listing::{List, Page};
use idem_core::protocol::{Answer, Record, Request};
use idem_core::{Store, Waiters};
use idem_runtime::DynStore;

/// How many characters of a key are shown. They are escaped, because the checks use hostile keys.
const KEY_SHOWN: usize = 48;

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

    pub(super) fn note(&self, what: &str) {
        self.history.note(self.started.elapsed(), what);
    }

    async fn watch<A: Debug>(
        &self,
        what: String,
        operation: impl Future<Output = Result<A, StoreError>>,
    ) -> Result<A, StoreError> {
        let line = self.history.note(self.started.elapsed(), &what);
        let answer = operation.await;
        self.history.answered(line, &answer);
        answer
    }
}

impl Store for Witness {
    async fn apply(&self, key: &RecordKey, request: Request) -> Result<Answer, StoreError> {
        self.watch(format!("{}: {request:?}", shown(key)), self.faults.apply(key, request)).await
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        self.watch(format!("{}: forget", shown(key)), self.faults.forget(key)).await
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        self.watch(format!("{}: get", shown(key)), self.faults.get(key)).await
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        self.watch(format!("purge at most {limit}"), self.faults.purge(limit)).await
    }

    async fn list(&self, request: &List) -> Result<Page, StoreError> {
        let what = format!("list {:?}, looking at {}", request.states, request.limit);
        self.watch(what, self.faults.list(request)).await
    }

    fn max_result_bytes(&self) -> Option<usize> {
        self.faults.max_result_bytes()
    }

    fn waiters(&self) -> &Waiters {
        self.faults.waiters()
    }
}

fn shown(key: &RecordKey) -> String {
    key.key().as_str().chars().take(KEY_SHOWN).flat_map(char::escape_default).collect()
}
