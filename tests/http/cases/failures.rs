//! Stores that are down, records that cannot be replayed, handlers that lose their claim, and functions that
//! panic.

use std::time::{Duration, Instant};

use idem::http::IdempotencyLayer;
use idem::protocol::{Claim, ClaimAnswer, Owner};
use idem::testing::{Fault, FaultStore, OperationKind};
use idem::{Key, MemoryStore, RecordKey, Scope, Store};
use idem_test_servers::web::{Answer, Request};

use super::{Slow, api, pay, with};
use crate::support;

#[tokio::test]
async fn a_store_that_is_down_is_503_in_time_or_the_handler_runs_unprotected_by_the_policy() {
    for fail_open in [false, true] {
        let store = FaultStore::new(MemoryStore::new());
        let layer = IdempotencyLayer::builder(store.clone())
            .shared_by_all_clients()
            .store_timeout(Duration::from_millis(300));
        let layer = if fail_open { layer.fail_open() } else { layer };
        let (server, runs) = api(layer.build().unwrap()).await;
        for fault in [Fault::FailBefore, Fault::HangBefore] {
            store.always(OperationKind::Claim, Some(fault));
            let begin = Instant::now();
            let answer = server.ask(Request::post("/pay", "k")).await;
            assert!(begin.elapsed() < Duration::from_secs(5));
            if fail_open {
                assert_eq!((answer.status, answer.is_replay()), (201, false));
            } else {
                assert_eq!((answer.status, answer.problem()), (503, "store-unavailable".into()));
                assert!(answer.retry_after() >= 1);
            }
        }
        store.always(OperationKind::Claim, None);
        assert_eq!(runs.count(), if fail_open { 2 } else { 0 });
        assert!(!server.ask(Request::post("/pay", "k")).await.is_replay());
        assert!(server.ask(Request::post("/pay", "k")).await.is_replay());
    }
}

fn record_key() -> RecordKey {
    RecordKey::new(Scope::new("http").unwrap(), Key::new("/k").unwrap())
}

#[tokio::test]
async fn a_record_that_holds_no_response_is_kept_and_nothing_runs_again() {
    let store = MemoryStore::new();
    let owner = Owner::random();
    let claim = Claim::new(owner, support::LEASE, Duration::from_secs(60));
    let key = record_key();
    let ClaimAnswer::Granted(grant) = store.claim(&key, &claim).await.unwrap() else { panic!("not granted") };
    store.complete(&key, &support::completion(owner, grant, "{}")).await.unwrap();
    let (server, runs) = api(IdempotencyLayer::shared_by_all_clients(store)).await;
    for _ in 0..2 {
        let refused = server.ask(Request::post("/pay", "k")).await;
        assert_eq!((refused.status, refused.problem()), (409, "in-doubt".into()));
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("cannot read") && !detail.contains("too large"), "{detail}");
    }
    assert_eq!(runs.count(), 0);
}

#[tokio::test]
async fn a_handler_that_lost_its_claim_gives_its_client_the_recorded_response() {
    let store = MemoryStore::new();
    let layer = || IdempotencyLayer::builder(store.clone()).shared_by_all_clients();
    let slow = Slow::start(|_| layer()).await;
    let mut late = slow.begin("k").await;
    // Deleting the record has the same effect as a lease that expires while the process is stopped.
    store.forget(&record_key()).await.unwrap();
    let successor = pay(|_| layer(), || async { "recorded" }).await;
    let recorded = successor.ask(Request::post("/pay", "k")).await;
    assert_eq!((&recorded.body[..], recorded.is_replay()), (&b"recorded"[..], false));
    slow.gate.may_end.add_permits(1);
    let late = Answer::read(&mut late).await;
    assert_eq!((late.lasting(), late.is_replay()), (recorded.lasting(), true));
}

#[tokio::test]
async fn a_hook_that_panics_costs_its_request_and_not_the_connection() {
    let (server, runs) = with(|builder| {
        builder
            .tenant(|request| Some(request.headers.get("x-account").unwrap().to_str().unwrap().to_owned()))
            .recording(|response| {
                assert_ne!(response.status, 202, "a bug");
                None
            })
    })
    .await;
    let failed = server.ask(Request::post("/pay", "k")).await;
    assert_eq!((failed.status, failed.problem()), (500, "misconfigured".into()));
    assert_eq!(runs.count(), 0, "the tenant is not known");
    let request =
        |status: &str| Request::post("/pay", "k").header("X-Account", "a").header("X-Status", status);
    let failed = server.ask(request("202")).await;
    assert_eq!((failed.status, failed.problem()), (500, "handler-failed".into()));
    assert_eq!(server.ask(request("201")).await.body, b"receipt 2", "the key is free again");
}
