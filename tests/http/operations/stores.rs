//! Long operations on a store that digests keys, on a store that fails, and on a store that changes during a
//! read.

use std::collections::BTreeSet;
use std::time::Duration;

use idem::testing::{Fault, FaultStore, OperationKind};
use idem::{MemoryStore, StoreExt as _};
use idem_test_servers::web::Request;
use metrics_util::debugging::DebuggingRecorder;

use super::{Api, of, place as place_of, request, settings};

#[tokio::test]
async fn an_operation_is_found_in_a_store_that_digests_keys() {
    let api = Api::with(settings(MemoryStore::new().digest_keys(&[7; 32]))).await;
    let place = api.begin("").await;
    assert_eq!(place_of(&api.look(&place).await), place);
    assert_eq!(api.end(&place).await.body, b"report 1");
}

#[tokio::test]
async fn duplicates_and_looks_that_fail_are_counted() {
    let recorder = DebuggingRecorder::new();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let store = FaultStore::new(MemoryStore::new());
    let api = Api::with(settings(store.clone())).await;
    let place = api.begin("").await;
    assert_eq!(place_of(&api.server.ask(request("k", "")).await), place);
    assert_eq!(api.look("/operations/unknown").await.status, 404);
    store.always(OperationKind::Get, Some(Fault::FailBefore));
    assert_eq!(api.look(&place).await.status, 503);
    let snapshot = recorder.snapshotter().snapshot().into_vec();
    let counted = snapshot.into_iter().filter(|(key, ..)| key.key().name() == "idem_http_total");
    let outcomes: BTreeSet<String> =
        counted.map(|(key, ..)| key.key().labels().last().unwrap().value().to_owned()).collect();
    assert_eq!(outcomes, ["accepted", "store-unavailable"].map(str::to_owned).into());
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

#[tokio::test]
async fn an_operation_that_ends_while_its_state_is_read_did_not_fail() {
    let store = FaultStore::new(MemoryStore::new());
    // The service reads the record, and then the store's time with a `list`. This delay lets the lease in
    // that record end before the `list` returns.
    store.next(OperationKind::List, Fault::DelayBefore(Duration::from_secs(1)));
    let api = Api::with(settings(store.clone()).lease(Duration::from_millis(400))).await;
    let place = api.begin("").await;
    let look = tokio::spawn(of("a", Request::new("GET", &place)).ask_at(api.server.address));
    while store.asked(OperationKind::List) == 0 {
        tokio::task::yield_now().await;
    }
    api.gate.may_end.add_permits(1);
    let end = look.await.unwrap();
    assert_eq!((end.status, &end.body[..]), (201, &b"report 1"[..]));
}
