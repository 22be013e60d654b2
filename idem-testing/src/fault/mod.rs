//! A store that fails on purpose.
//!
//! Owns the wrapper; `plan` decides what goes wrong.

mod plan;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::sleep;

use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::inspection::Inspection;
use idem_core::listing::{List, Page};
use idem_core::protocol::{Answer, Record, Request};
use idem_core::{Store, Waiters};

use plan::Plan;
pub use plan::{Fault, OperationKind, Rates};

/// Wraps a store and lets its operations fail, lose their answers, be late or hang, by script or at random
/// from a seed.
///
/// Clones share the script and the counts. The fault of an operation is chosen when the operation is first
/// polled: the fault that [`next`](Self::next) queued for its kind, else the fault of [`down`](Self::down),
/// else the fault of [`always`](Self::always), else a random one. `inspect` has no faults.
///
/// ```
/// # use idem_runtime as idem;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), idem::Error> {
/// use idem_testing::{Fault, FaultStore, OperationKind};
/// use idem::{MemoryStore, Operation};
///
/// let store = FaultStore::new(MemoryStore::new());
/// // The store records the result, but the answer does not come back.
/// store.next(OperationKind::Complete, Fault::FailAfter);
///
/// let charge = Operation::new("payments.charge");
/// let first = charge.run(&store, "order-42", || async { Ok::<_, idem::Error>(1) }).await?;
/// let again = charge.run(&store, "order-42", || async { Ok::<_, idem::Error>(2) }).await?;
///
/// assert_eq!((first, again), (1, 1));
/// assert_eq!(store.asked(OperationKind::Complete), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct FaultStore<S> {
    inner: S,
    plan: Arc<Mutex<Plan>>,
}

impl<S: Store> FaultStore<S> {
    /// Wraps `inner`, without faults at first.
    #[must_use]
    pub fn new(inner: S) -> Self {
        Self::seeded(inner, 0, Rates::none())
    }

    /// Wraps `inner`, with random faults at these rates. With the same seed, the n-th operation of each kind
    /// always has the same fault.
    ///
    /// Print the seed, as [`testing::seed`](crate::seed) does.
    #[must_use]
    pub fn seeded(inner: S, seed: u64, rates: Rates) -> Self {
        Self { inner, plan: Arc::new(Mutex::new(Plan::seeded(seed, rates))) }
    }

    /// Queues a fault for the operations of this kind: the next operation gets the first queued fault. `None`
    /// lets one operation through without a fault.
    pub fn next(&self, kind: OperationKind, fault: impl Into<Option<Fault>>) {
        self.plan().push(kind, fault.into());
    }

    /// Gives this fault to each operation of this kind, unless a fault is queued for it or the store is
    /// [`down`](Self::down). After `None`, faults are random again.
    pub fn always(&self, kind: OperationKind, fault: impl Into<Option<Fault>>) {
        self.plan().set_always(kind, fault.into());
    }

    /// While `down` is `true`, every operation without a queued fault fails before it is applied.
    pub fn down(&self, down: bool) {
        self.plan().set_down(down);
    }

    /// How many operations of this kind were requested.
    #[must_use]
    pub fn asked(&self, kind: OperationKind) -> u64 {
        self.plan().counts(kind).asked
    }

    /// How many operations of this kind the wrapped store answered without an error. Counts an operation also
    /// if its answer was lost.
    #[must_use]
    pub fn applied(&self, kind: OperationKind) -> u64 {
        self.plan().counts(kind).applied
    }

    /// The wrapped store, without faults.
    #[must_use]
    pub const fn inner(&self) -> &S {
        &self.inner
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes an operation with its fault.
    async fn meet<A: Send + 'static>(
        &self,
        kind: OperationKind,
        operation: impl Future<Output = Result<A, StoreError>> + Send + 'static,
    ) -> Result<A, StoreError> {
        let fault = self.plan().take(kind);
        let plan = self.plan.clone();
        let apply = async move {
            let answer = operation.await;
            let mut plan = plan.lock().unwrap_or_else(PoisonError::into_inner);
            plan.counts(kind).applied += u64::from(answer.is_ok());
            answer
        };
        match fault {
            None => apply.await,
            Some(Fault::FailBefore) => {
                Err(StoreError::unavailable("a fault was injected before the operation was applied"))
            }
            Some(Fault::FailAfter) => {
                let _ = apply.await;
                Err(lost())
            }
            Some(Fault::FailThenApply(delay)) => {
                tokio::spawn(async move {
                    sleep(delay).await;
                    apply.await
                });
                Err(lost())
            }
            Some(Fault::DelayBefore(delay)) => {
                sleep(delay).await;
                apply.await
            }
            Some(Fault::DelayAfter(delay)) => {
                let answer = apply.await;
                sleep(delay).await;
                answer
            }
            Some(Fault::HangBefore) => std::future::pending().await,
            Some(Fault::HangAfter) => {
                let _ = apply.await;
                std::future::pending().await
            }
        }
    }
}

fn lost() -> StoreError {
    StoreError::outcome_unknown("a fault was injected that lost the answer")
}

impl<S> fmt::Debug for FaultStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultStore").finish_non_exhaustive()
    }
}

impl<S: Store> Store for FaultStore<S> {
    async fn apply(&self, key: &RecordKey, request: Request) -> Result<Answer, StoreError> {
        let (inner, key) = (self.inner.clone(), key.clone());
        self.meet(OperationKind::of(&request), async move { inner.apply(&key, request).await }).await
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        let (inner, key) = (self.inner.clone(), key.clone());
        self.meet(OperationKind::Forget, async move { inner.forget(&key).await }).await
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        let (inner, key) = (self.inner.clone(), key.clone());
        self.meet(OperationKind::Get, async move { inner.get(&key).await }).await
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        let inner = self.inner.clone();
        self.meet(OperationKind::Purge, async move { inner.purge(limit).await }).await
    }

    async fn list(&self, request: &List) -> Result<Page, StoreError> {
        let (inner, request) = (self.inner.clone(), request.clone());
        self.meet(OperationKind::List, async move { inner.list(&request).await }).await
    }

    async fn inspect(&self) -> Result<Inspection, StoreError> {
        self.inner.inspect().await
    }

    fn max_result_bytes(&self) -> Option<usize> {
        self.inner.max_result_bytes()
    }

    fn waiters(&self) -> &Waiters {
        self.inner.waiters()
    }
}
