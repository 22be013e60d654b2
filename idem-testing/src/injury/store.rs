//! The store of a trial: a `MemoryStore` with injuries at the places that the trial chooses.

use std::fmt;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use idem_core::inspection::Inspection;
use idem_core::listing::{List, Page};
use idem_core::protocol::{Answer, Owner, Record, Request};
use idem_core::{RecordKey, Store, StoreError, Waiters};
use idem_runtime::MemoryStore;

use super::state::{Injury, Met, State};
use crate::{Fault, FaultStore, OperationKind};

/// The store of a [`Trial`](super::Trial): pass it to the function under test. Clones share the records.
///
/// Claims, renewals, steps, completions and releases are places for an injury, if their owner belongs to the
/// call that the trial makes now. Reads (`get`) are places while the trial makes a call. `resolve`, `forget`,
/// `purge`, `list` and `inspect` have no injuries.
#[derive(Clone)]
pub struct TrialStore {
    faults: FaultStore<MemoryStore>,
    state: Arc<Mutex<State>>,
    go_on: Arc<Notify>,
}

impl TrialStore {
    pub(super) fn new(state: State) -> Self {
        let state = Arc::new(Mutex::new(state));
        Self { faults: FaultStore::new(MemoryStore::new()), state, go_on: Arc::default() }
    }

    /// Lets a paused operation continue.
    pub(super) fn go_on(&self) {
        self.go_on.notify_one();
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn meet<A>(
        &self,
        kind: OperationKind,
        owner: Option<Owner>,
        operation: impl Future<Output = Result<A, StoreError>>,
    ) -> Result<A, StoreError> {
        let met = self.state().meet(kind, owner);
        match met {
            Met::Apply => operation.await,
            Met::Unheard => Err(StoreError::unavailable("this worker is cut off from its store")),
            Met::Struck(Injury::LostAnswer) => {
                self.faults.next(kind, Fault::FailAfter);
                operation.await
            }
            Met::Struck(injury @ Injury::CrashAfter) => {
                // The worker is dead, so nobody gets the answer.
                let _ = operation.await;
                self.state().raise(injury);
                pending().await
            }
            Met::Struck(injury @ (Injury::CrashBefore | Injury::DroppedCaller)) => {
                self.state().raise(injury);
                pending().await
            }
            Met::Struck(injury @ (Injury::LeaseLost | Injury::Superseded | Injury::Duplicate)) => {
                self.state().raise(injury);
                self.go_on.notified().await;
                operation.await
            }
        }
    }
}

impl fmt::Debug for TrialStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrialStore").finish_non_exhaustive()
    }
}

impl Store for TrialStore {
    async fn apply(&self, key: &RecordKey, request: Request) -> Result<Answer, StoreError> {
        let kind = OperationKind::of(&request);
        if let Request::Claim(claim) = &request {
            let mut state = self.state();
            state.longest_lease = state.longest_lease.max(claim.lease);
        }
        let Some(owner) = request.owner() else { return self.faults.apply(key, request).await };
        self.meet(kind, Some(owner), self.faults.apply(key, request)).await
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        self.faults.forget(key).await
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        self.meet(OperationKind::Get, None, self.faults.get(key)).await
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        self.faults.purge(limit).await
    }

    async fn list(&self, request: &List) -> Result<Page, StoreError> {
        self.faults.list(request).await
    }

    async fn inspect(&self) -> Result<Inspection, StoreError> {
        self.faults.inspect().await
    }

    fn max_result_bytes(&self) -> Option<usize> {
        self.faults.max_result_bytes()
    }

    fn waiters(&self) -> &Waiters {
        self.faults.waiters()
    }
}
