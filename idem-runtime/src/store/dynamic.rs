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
use idem_core::protocol::{Answer, Record, Request};
use idem_core::{Store, Waiters};

type Answering<'a, A> = BoxFuture<'a, Result<A, StoreError>>;

/// [`Store`] with boxed futures.
trait Erased: Send + Sync {
    fn apply<'a>(&'a self, key: &'a RecordKey, request: Request) -> Answering<'a, Answer>;
    fn forget<'a>(&'a self, key: &'a RecordKey) -> Answering<'a, bool>;
    fn get<'a>(&'a self, key: &'a RecordKey) -> Answering<'a, Option<Record>>;
    fn purge(&self, limit: usize) -> Answering<'_, usize>;
    fn list<'a>(&'a self, request: &'a List) -> Answering<'a, Page>;
    fn inspect(&self) -> Answering<'_, Inspection>;
    fn max_result_bytes(&self) -> Option<usize>;
    fn waiters(&self) -> &Waiters;
}

impl<S: Store> Erased for S {
    fn apply<'a>(&'a self, key: &'a RecordKey, request: Request) -> Answering<'a, Answer> {
        Box::pin(Store::apply(self, key, request))
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
/// Clones share the store. Each operation costs one allocation and one virtual call more than with the store
/// itself.
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
    async fn apply(&self, key: &RecordKey, request: Request) -> Result<Answer, StoreError> {
        self.0.apply(key, request).await
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
