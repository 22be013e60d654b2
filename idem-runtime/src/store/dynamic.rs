//! A store that is chosen at run time.
//!
//! Owns [`DynStore`]. It knows a store only through the [`Store`] trait.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::error::StoreError;
use idem_core::RecordKey;
use idem_core::inspection::Inspection;
use idem_core::listing::{List, Page};
use idem_core::protocol::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Record, RecordStep, RecordStepAnswer, Release,
    ReleaseAnswer, Renew, RenewAnswer, Resolution, ResolveAnswer,
};
use idem_core::{Store, Waiters};

type Answering<'a, A> = BoxFuture<'a, Result<A, StoreError>>;

/// [`Store`] with boxed futures.
trait Erased: Send + Sync {
    fn claim<'a>(&'a self, key: &'a RecordKey, request: &'a Claim) -> Answering<'a, ClaimAnswer>;
    fn renew<'a>(&'a self, key: &'a RecordKey, request: &'a Renew) -> Answering<'a, RenewAnswer>;
    fn record_step<'a>(
        &'a self,
        key: &'a RecordKey,
        request: &'a RecordStep,
    ) -> Answering<'a, RecordStepAnswer>;
    fn complete<'a>(&'a self, key: &'a RecordKey, request: &'a Complete) -> Answering<'a, CompleteAnswer>;
    fn release<'a>(&'a self, key: &'a RecordKey, request: &'a Release) -> Answering<'a, ReleaseAnswer>;
    fn resolve<'a>(&'a self, key: &'a RecordKey, word: &'a Resolution) -> Answering<'a, ResolveAnswer>;
    fn forget<'a>(&'a self, key: &'a RecordKey) -> Answering<'a, bool>;
    fn get<'a>(&'a self, key: &'a RecordKey) -> Answering<'a, Option<Record>>;
    fn purge(&self, limit: usize) -> Answering<'_, usize>;
    fn list<'a>(&'a self, request: &'a List) -> Answering<'a, Page>;
    fn inspect(&self) -> Answering<'_, Inspection>;
    fn max_result_bytes(&self) -> Option<usize>;
    fn waiters(&self) -> &Waiters;
}

impl<S: Store> Erased for S {
    fn claim<'a>(&'a self, key: &'a RecordKey, request: &'a Claim) -> Answering<'a, ClaimAnswer> {
        Box::pin(Store::claim(self, key, request))
    }
    fn renew<'a>(&'a self, key: &'a RecordKey, request: &'a Renew) -> Answering<'a, RenewAnswer> {
        Box::pin(Store::renew(self, key, request))
    }
    fn record_step<'a>(
        &'a self,
        key: &'a RecordKey,
        request: &'a RecordStep,
    ) -> Answering<'a, RecordStepAnswer> {
        Box::pin(Store::record_step(self, key, request))
    }
    fn complete<'a>(&'a self, key: &'a RecordKey, request: &'a Complete) -> Answering<'a, CompleteAnswer> {
        Box::pin(Store::complete(self, key, request))
    }
    fn release<'a>(&'a self, key: &'a RecordKey, request: &'a Release) -> Answering<'a, ReleaseAnswer> {
        Box::pin(Store::release(self, key, request))
    }
    fn resolve<'a>(&'a self, key: &'a RecordKey, word: &'a Resolution) -> Answering<'a, ResolveAnswer> {
        Box::pin(Store::resolve(self, key, word))
    }
    fn forget<'a>(&'a self, key: &'a RecordKey) -> Answering<'a, bool> {
        Box::pin(Store::forget(self, key))
    }
    fn get<'a>(&'a self, key: &'a RecordKey) -> Answering<'a, Option<Record>> {
        Box::pin(Store::get(self, key))
    }
    fn purge(&self, limit: usize) -> Answering<'_, usize> {
        Box::pin(Store::purge(self, limit))
    }
    fn list<'a>(&'a self, request: &'a List) -> Answering<'a, Page> {
        Box::pin(Store::list(self, request))
    }
    fn inspect(&self) -> Answering<'_, Inspection> {
        Box::pin(Store::inspect(self))
    }
    fn max_result_bytes(&self) -> Option<usize> {
        Store::max_result_bytes(self)
    }
    fn waiters(&self) -> &Waiters {
        Store::waiters(self)
    }
}

/// Any [`Store`], as one type: for a program that takes its store from its configuration.
///
/// Clones share the store. Each operation costs one allocation and one virtual call more than with the store itself.
///
/// ```
/// # use idem_runtime as idem;
/// use idem::{DynStore, MemoryStore};
///
/// let chosen = "memory";
/// let store = match chosen {
///     "memory" => DynStore::new(MemoryStore::new()),
///     other => panic!("there is no store {other}"),
/// };
/// # let _ = store;
/// ```
#[derive(Clone)]
pub struct DynStore(Arc<dyn Erased>);

impl DynStore {
    /// This store as a `DynStore`.
    #[must_use]
    pub fn new<S: Store>(store: S) -> Self {
        Self(Arc::new(store))
    }
}

impl fmt::Debug for DynStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DynStore")
    }
}

impl Store for DynStore {
    async fn claim(&self, key: &RecordKey, request: &Claim) -> Result<ClaimAnswer, StoreError> {
        self.0.claim(key, request).await
    }
    async fn renew(&self, key: &RecordKey, request: &Renew) -> Result<RenewAnswer, StoreError> {
        self.0.renew(key, request).await
    }
    async fn record_step(
        &self,
        key: &RecordKey,
        request: &RecordStep,
    ) -> Result<RecordStepAnswer, StoreError> {
        self.0.record_step(key, request).await
    }
    async fn complete(&self, key: &RecordKey, request: &Complete) -> Result<CompleteAnswer, StoreError> {
        self.0.complete(key, request).await
    }
    async fn release(&self, key: &RecordKey, request: &Release) -> Result<ReleaseAnswer, StoreError> {
        self.0.release(key, request).await
    }
    async fn resolve(&self, key: &RecordKey, resolution: &Resolution) -> Result<ResolveAnswer, StoreError> {
        self.0.resolve(key, resolution).await
    }
    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        self.0.forget(key).await
    }
    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        self.0.get(key).await
    }
    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        self.0.purge(limit).await
    }
    async fn list(&self, request: &List) -> Result<Page, StoreError> {
        self.0.list(request).await
    }
    async fn inspect(&self) -> Result<Inspection, StoreError> {
        self.0.inspect().await
    }
    fn max_result_bytes(&self) -> Option<usize> {
        self.0.max_result_bytes()
    }
    fn waiters(&self) -> &Waiters {
        self.0.waiters()
    }
}
