//! Long operations on stores that digest keys, fail, or change while they are read.

use std::sync::Arc;
use std::time::Duration;

use idem::protocol::{Answer as StoreAnswer, Record, Request as StoreRequest, State};
use idem::testing::{Fault, FaultStore, OperationKind};
use idem::{MemoryStore, RecordKey, Store, StoreError, StoreExt as _};
use idem_core::listing::{List, Page};
use idem_test_servers::web::{Request, Server};
use tokio::sync::Semaphore;

use super::{Api, App, of, place as place_of, request, router, settings};

#[tokio::test]
async fn an_operation_is_found_in_a_store_that_digests_keys() {
    let api = Api::with(settings(MemoryStore::new().digest_keys(&[7; 32]))).await;
    let place = api.begin("").await;
    assert_eq!(place_of(&api.look(&place).await), place);
    assert_eq!(api.end(&place).await.body, b"report 1");
}

#[tokio::test]
async fn a_store_that_is_down_is_503_and_no_state() {
    let store = FaultStore::new(MemoryStore::new());
    let api = Api::with(settings(store.clone()).store_timeout(Duration::from_millis(200))).await;
    let place = api.begin("").await;
    for kind in [OperationKind::Get, OperationKind::List] {
        for fault in [Fault::FailBefore, Fault::HangBefore] {
            store.always(kind, Some(fault));
            let down = api.look(&place).await;
            assert_eq!((down.status, down.problem()), (503, "store-unavailable".into()));
            assert_eq!(down.retry_after(), 1);
        }
        store.always(kind, None);
    }
    assert_eq!(api.look(&place).await.status, 202);
}

/// A store in which the operation ends, and its first lease is over, while a look reads the clock.
#[derive(Clone)]
struct SlowClock {
    inner: MemoryStore,
    may_end: Arc<Semaphore>,
}

impl Store for SlowClock {
    async fn apply(&self, key: &RecordKey, request: StoreRequest) -> Result<StoreAnswer, StoreError> {
        self.inner.apply(key, request).await
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        self.inner.get(key).await
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        self.inner.forget(key).await
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        self.inner.purge(limit).await
    }

    async fn list(&self, request: &List) -> Result<Page, StoreError> {
        self.may_end.add_permits(1);
        loop {
            let mut page = self.inner.list(request).await?;
            if page.records.iter().all(|listed| listed.record.state == State::Completed) {
                page.now = page.now.after(Duration::from_secs(60));
                return Ok(page);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[tokio::test]
async fn an_operation_that_ends_while_its_state_is_read_did_not_fail() {
    let app = App::new();
    let store = SlowClock { inner: MemoryStore::new(), may_end: app.may_end.clone() };
    let layer = settings(store).build().unwrap();
    let server = Server::start(router(layer, app.clone())).await;
    let place = place_of(&server.ask(request("k", "")).await);
    app.has_begun().await;
    let end = server.ask(of("a", Request::new("GET", &place))).await;
    assert_eq!((end.status, &end.body[..]), (201, &b"report 1"[..]));
}
