//! Tests of what `NatsKvStore` promises beyond the protocol: the bucket, expiry, failures.

use std::time::{Duration, Instant};

use async_nats::jetstream::{self, kv};
use idem_nats_kv::{NatsKvStore, NatsKvStoreBuilder};
use idem_runtime::inspection::Standing;
use idem_runtime::listing::List;
use idem_runtime::protocol::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Grant, Owner, Renew, RenewAnswer, StoredResult, Verdict,
};
use idem_runtime::{Key, OnCrash, RecordKey, Scope, Store, StoreErrorKind};
use idem_test_servers::Nats;

const SECOND: Duration = Duration::from_secs(1);
/// Less than the default of the operation timeout, and longer than a busy machine stops a process.
const SOON: Duration = Duration::from_millis(4_800);

fn key(key: &str) -> RecordKey {
    RecordKey::new(Scope::new("test.nats").unwrap(), Key::new(key).unwrap())
}

fn claim() -> Claim {
    Claim::new(Owner::random(), SECOND * 30, SECOND * 3_600)
}

fn completion(claim: &Claim, grant: &Grant) -> Complete {
    let result = StoredResult::Value("7".into());
    Complete::new(claim.owner, grant.fence, Verdict::Completed, result, claim.ttl)
}

async fn granted(store: &NatsKvStore, key: &RecordKey, claim: &Claim) -> Grant {
    match store.claim(key, claim).await.unwrap() {
        ClaimAnswer::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

fn builder(nats: &Nats) -> NatsKvStoreBuilder {
    NatsKvStore::builder(&nats.url(), "records").clock_skew(Duration::ZERO)
}

/// A store that gives up after this time. Connecting may take longer.
async fn impatient(nats: &Nats, timeout: Duration) -> NatsKvStore {
    for _ in 0..100 {
        if let Ok(store) = builder(nats).operation_timeout(timeout).connect().await {
            return store;
        }
    }
    panic!("the server accepts no connection");
}

/// The bucket, through a client of its own.
async fn bucket(nats: &Nats) -> kv::Store {
    let client = async_nats::connect(nats.url()).await.unwrap();
    jetstream::new(client).get_key_value("records").await.unwrap()
}

/// For how long the server keeps the message of a key, as its header says.
async fn expiry(bucket: &kv::Store, key: &str) -> Option<u64> {
    let subject = format!("$KV.records.test=2Enats.{key}");
    let message = bucket.stream.get_last_raw_message_by_subject(&subject).await.unwrap();
    message.headers.get("Nats-TTL").map(|value| value.as_str().parse().unwrap())
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_server_that_is_killed_and_the_store_goes_on() {
    let mut nats = Nats::start();
    let store = builder(&nats).connect().await.unwrap();
    let (first, second) = (claim(), claim());
    let grant = granted(&store, &key("a"), &first).await;
    let done = granted(&store, &key("b"), &second).await;
    assert_eq!(store.complete(&key("b"), &completion(&second, &done)).await.unwrap(), CompleteAnswer::Done);
    nats.server().kill();
    nats.server().restart();
    assert_eq!(store.complete(&key("a"), &completion(&first, &grant)).await.unwrap(), CompleteAnswer::Done);
    for name in ["a", "b"] {
        assert!(matches!(store.claim(&key(name), &claim()).await.unwrap(), ClaimAnswer::Replay(_)));
    }
}

#[tokio::test]
async fn a_stopped_server_leaves_the_outcome_unknown_and_the_same_owner_finds_it_out() {
    let mut nats = Nats::start();
    let impatient = impatient(&nats, Duration::from_millis(700)).await;
    let request = claim();
    nats.server().signal("-STOP");
    let begin = Instant::now();
    let error = impatient.claim(&key("private"), &request).await.unwrap_err();
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{error}");
    assert!(!format!("{error} {error:?}").contains("private"));
    nats.server().signal("-CONT");

    let patient = builder(&nats).connect().await.unwrap();
    let grant = granted(&patient, &key("private"), &request).await;
    assert_eq!(grant.attempt, 1);
    assert_eq!(granted(&patient, &key("private"), &request).await.fence, grant.fence);
    let other = patient.claim(&key("private"), &claim()).await.unwrap();
    assert!(matches!(other, ClaimAnswer::Busy { .. }), "{other:?}");
}

#[tokio::test]
async fn the_server_deletes_what_is_expired_and_never_what_may_be_in_doubt() {
    let nats = Nats::start();
    let store = builder(&nats).connect().await.unwrap();
    let bucket = bucket(&nats).await;
    let long = claim().with_ttl(SECOND * 7_200);
    let (short, doubt) = (claim(), claim().with_on_crash(OnCrash::InDoubt));
    let grant = granted(&store, &key("long"), &long).await;
    store.complete(&key("long"), &completion(&long, &grant)).await.unwrap();
    assert!((7_200..7_210).contains(&expiry(&bucket, "long").await.unwrap()));
    granted(&store, &key("short"), &short.with_lease(SECOND).with_ttl(SECOND)).await;
    // Its fence is remembered for an hour.
    assert!((3_599..3_610).contains(&expiry(&bucket, "short").await.unwrap()));
    granted(&store, &key("doubt"), &doubt).await;
    assert_eq!(expiry(&bucket, "doubt").await, None);
}

#[tokio::test]
async fn a_purge_leaves_nothing_of_an_expired_key_and_touches_no_other_prefix() {
    let nats = Nats::start();
    let (store, neighbour) = (builder(&nats).prefix("ours"), builder(&nats).prefix("theirs"));
    let (store, neighbour) = (store.connect().await.unwrap(), neighbour.connect().await.unwrap());
    let moment = Duration::from_millis(1);
    for store in [&store, &neighbour] {
        granted(store, &key("over"), &claim().with_lease(moment).with_ttl(moment)).await;
        granted(store, &key("live"), &claim()).await;
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
    granted(&store, &key("a"), &claim()).await;
    bucket.delete("test=2Enats.a").await.unwrap();
    assert!(store.get(&key("a")).await.unwrap().is_none());
    assert_eq!(granted(&store, &key("a"), &claim()).await.attempt, 1);
}

#[test]
fn a_store_outlives_the_runtime_it_was_made_in() {
    let nats = Nats::start();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = runtime().block_on(builder(&nats).connect()).unwrap();
    let request = claim();
    let grant = runtime().block_on(granted(&store, &key("a"), &request));
    let renew = Renew::new(request.owner, grant.fence, SECOND * 30);
    assert_eq!(runtime().block_on(store.renew(&key("a"), &renew)).unwrap(), RenewAnswer::Held);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_walk_does_not_wait_for_records_that_are_deleted_while_it_reads() {
    let nats = Nats::start();
    let store = builder(&nats).operation_timeout(SECOND * 8).connect().await.unwrap();
    let bucket = bucket(&nats).await;
    for round in 0..100 {
        for record in 0..5 {
            granted(&store, &key(&format!("{round} {record}")), &claim()).await;
        }
        let request = List::default();
        let (page, purge) = tokio::join!(store.list(&request), bucket.stream.purge().into_future());
        assert!(page.unwrap().records.len() <= 5, "round {round}");
        purge.unwrap();
    }
}
