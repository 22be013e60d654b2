//! Tests of what `NatsKvStore` promises beyond the protocol: the bucket, expiry, failures.

use std::time::{Duration, Instant};

use async_nats::jetstream::{self, kv};
use idem_nats_kv::{NatsKvStore, NatsKvStoreBuilder};
use idem_runtime::inspection::Standing;
use idem_runtime::listing::List;
use idem_runtime::protocol::ClaimAnswer;
use idem_runtime::{OnCrash, Store, StoreErrorKind};
use idem_test_servers::Nats;

use crate::requests::*;

const SECOND: Duration = Duration::from_secs(1);
/// Upper limit for an operation with a short timeout. This limit is less than the default timeout. It leaves
/// time for a busy machine, which may stop the process for a while.
const SOON: Duration = Duration::from_millis(4_800);

fn builder(nats: &Nats) -> NatsKvStoreBuilder {
    NatsKvStore::builder(&nats.url(), "records").clock_skew(Duration::ZERO)
}

/// A store with this operation timeout. Tries to connect several times, because one try may take longer.
async fn impatient(nats: &Nats, timeout: Duration) -> NatsKvStore {
    for _ in 0..100 {
        if let Ok(store) = builder(nats).operation_timeout(timeout).connect().await {
            return store;
        }
    }
    panic!("the server accepts no connection");
}

async fn bucket(nats: &Nats) -> kv::Store {
    let client = async_nats::connect(nats.url()).await.unwrap();
    jetstream::new(client).get_key_value("records").await.unwrap()
}

/// How long the server keeps the message of a key, in seconds, according to the message's header.
async fn expiry(bucket: &kv::Store, key: &str) -> Option<u64> {
    let subject = format!("$KV.records.test.{key}");
    let message = bucket.stream.get_last_raw_message_by_subject(&subject).await.unwrap();
    message.headers.get("Nats-TTL").map(|value| value.as_str().parse().unwrap())
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_server_that_is_killed_and_the_store_goes_on() {
    let mut nats = Nats::start();
    let store = builder(&nats).connect().await.unwrap();
    let (owner, grant) = granted(&store, &key("a")).await;
    complete(&store, &key("b"), b"7").await;
    nats.server().kill();
    nats.server().restart();
    finish(&store, &key("a"), owner, grant.fence, b"7").await;
    for name in ["a", "b"] {
        assert_eq!(replayed(&store, &key(name)).await, b"7");
    }
}

#[tokio::test]
async fn a_stopped_server_leaves_the_outcome_unknown_and_the_same_owner_finds_it_out() {
    let mut nats = Nats::start();
    let impatient = impatient(&nats, Duration::from_millis(700)).await;
    let request = claim_request();
    nats.server().signal("-STOP");
    let begin = Instant::now();
    let error = impatient.claim(&key("private"), &request).await.unwrap_err();
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{error}");
    assert!(!format!("{error} {error:?}").contains("private"));
    nats.server().signal("-CONT");

    let patient = builder(&nats).connect().await.unwrap();
    let grant = granted_as(&patient, &key("private"), &request).await;
    assert_eq!(grant.attempt, 1);
    assert_eq!(granted_as(&patient, &key("private"), &request).await.fence, grant.fence);
    let other = patient.claim(&key("private"), &claim_request()).await.unwrap();
    assert!(matches!(other, ClaimAnswer::Busy { .. }), "{other:?}");
}

#[tokio::test]
async fn the_server_deletes_what_is_expired_and_never_what_may_be_in_doubt() {
    let nats = Nats::start();
    let store = builder(&nats).connect().await.unwrap();
    let bucket = bucket(&nats).await;
    let doubt = claim_request().with_on_crash(OnCrash::InDoubt);
    let (owner, grant) = granted(&store, &key("long")).await;
    let done = completion(owner, grant.fence, b"7").with_ttl(SECOND * 7_200);
    store.complete(&key("long"), &done).await.unwrap();
    assert!((7_200..7_210).contains(&expiry(&bucket, "long").await.unwrap()));
    granted_as(&store, &key("short"), &claim_request().with_lease(SECOND).with_ttl(SECOND)).await;
    // The record expires after two seconds, but its fence is kept for an hour.
    assert!((3_599..3_610).contains(&expiry(&bucket, "short").await.unwrap()));
    granted_as(&store, &key("doubt"), &doubt).await;
    assert_eq!(expiry(&bucket, "doubt").await, None);
}

#[tokio::test]
async fn a_purge_leaves_nothing_of_an_expired_key_and_touches_no_other_prefix() {
    let nats = Nats::start();
    let (store, neighbour) = (builder(&nats).prefix("ours"), builder(&nats).prefix("theirs"));
    let (store, neighbour) = (store.connect().await.unwrap(), neighbour.connect().await.unwrap());
    for store in [&store, &neighbour] {
        granted_as(store, &key("over"), &short_claim()).await;
        granted(store, &key("live")).await;
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(store.purge(100).await.unwrap(), 1);
    assert_eq!(bucket(&nats).await.stream.info().await.unwrap().state.messages, 3);
    assert!(neighbour.forget(&key("live")).await.unwrap());
    assert!(store.get(&key("live")).await.unwrap().is_some());
}

#[tokio::test]
async fn a_bucket_that_would_lose_records_is_refused() {
    let nats = Nats::start();
    let context = jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    let config = kv::Config { bucket: "aging".into(), max_age: SECOND * 60, ..kv::Config::default() };
    context.create_key_value(config).await.unwrap();
    let wrong = [
        (NatsKvStore::builder(&nats.url(), "aging"), "max_age"),
        (NatsKvStore::builder(&nats.url(), "none").must_exist(), "does not exist"),
        (NatsKvStore::builder(&nats.url(), "a.b"), "names of a bucket"),
    ];
    for (builder, text) in wrong {
        let error = builder.connect().await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
    let inspection = builder(&nats).connect().await.unwrap().inspect().await.unwrap();
    assert!(inspection.server.starts_with("NATS 2."), "{inspection:?}");
    assert!(
        inspection.findings.iter().all(|finding| finding.standing <= Standing::Unknown),
        "{inspection:?}"
    );
}

#[tokio::test]
async fn a_key_that_another_tool_deleted_can_be_claimed() {
    let nats = Nats::start();
    let store = builder(&nats).connect().await.unwrap();
    let bucket = bucket(&nats).await;
    granted(&store, &key("a")).await;
    bucket.delete("test.a").await.unwrap();
    assert!(store.get(&key("a")).await.unwrap().is_none());
    assert_eq!(granted(&store, &key("a")).await.1.attempt, 1);
}

#[test]
fn a_store_outlives_the_runtime_it_was_made_in() {
    let nats = Nats::start();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = runtime().block_on(builder(&nats).connect()).unwrap();
    let (owner, grant) = runtime().block_on(granted(&store, &key("a")));
    runtime().block_on(renew(&store, &key("a"), owner, grant.fence));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_walk_does_not_wait_for_records_that_are_deleted_while_it_reads() {
    let nats = Nats::start();
    let store = builder(&nats).operation_timeout(SECOND * 8).connect().await.unwrap();
    let bucket = bucket(&nats).await;
    for round in 0..100 {
        for record in 0..5 {
            granted(&store, &key(&format!("{round} {record}"))).await;
        }
        let request = List::default();
        let (page, purge) = tokio::join!(store.list(&request), bucket.stream.purge().into_future());
        assert!(page.unwrap().records.len() <= 5, "round {round}");
        purge.unwrap();
    }
}
