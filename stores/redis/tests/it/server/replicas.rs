//! Tests with replicas: some that the store waits for, and some that are gone.

use std::time::{Duration, Instant};

use idem_redis::RedisStore;
use idem_runtime::protocol::{ClaimAnswer, CompleteAnswer, OnCrash, State};
use idem_runtime::{Store, StoreErrorKind};
use idem_test_servers::Redis;
use redis::{Commands as _, Connection, cmd};

use crate::support::*;

#[tokio::test]
async fn too_few_replicas_count_as_not_granted_and_not_recorded() {
    let master = Redis::with(&["--repl-diskless-sync-delay", "0"]);
    let build = || {
        let builder = RedisStore::builder(master.url()).operation_timeout(PATIENCE);
        builder.wait_replicas(1, Duration::from_millis(200)).connect()
    };
    let store = build().await.unwrap();
    let error = store.claim(&key("a"), &claim_request()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{error:?}");
    assert!(error.to_string().contains("0 of 1 replicas"), "{error}");

    let (mut replica, mut server) = replica_of(&master).await;
    let request = claim_request();
    let ClaimAnswer::Granted(grant) = known(async || store.claim(&key("b"), &request).await).await else {
        panic!()
    };
    let owner = request.owner;
    let mut copy = client(&replica.url());
    let record: Vec<u8> = copy.get(name("b")).unwrap();
    assert_eq!(record[1], b'I', "the grant is on the replica when it is given");
    replica.server().signal("-STOP");
    let complete = completion(owner, grant.fence, b"r");
    let error = store.complete(&key("b"), &complete).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{error:?}");
    // Another connection gets the same error, because the result is written but no replica has acknowledged
    // it yet.
    let another = build().await.unwrap();
    assert!(another.complete(&key("b"), &complete).await.unwrap_err().is_outcome_unknown());
    assert!(another.claim(&key("b"), &claim_request()).await.unwrap_err().is_outcome_unknown());
    let again = claim_request();
    assert!(store.claim(&key("c"), &again).await.unwrap_err().is_outcome_unknown());
    assert!(build().await.unwrap().claim(&key("c"), &again).await.unwrap_err().is_outcome_unknown());
    // Waiting callers take the result from a read, so a read must fail too.
    assert!(another.get(&key("b")).await.unwrap_err().is_outcome_unknown());
    replica.server().signal("-CONT");
    assert_eq!(known(async || store.complete(&key("b"), &complete).await).await, CompleteAnswer::Done);
    let replay = known(async || store.claim(&key("b"), &claim_request()).await).await;
    assert!(matches!(replay, ClaimAnswer::Replay(_)), "{replay:?}");
    let record = known(async || another.get(&key("b")).await).await.unwrap();
    assert_eq!(record.state, State::Completed);
    let endless = claim_request().with_on_crash(OnCrash::InDoubt);
    for _ in 0..2 {
        known(async || store.claim(&key("d"), &endless).await).await;
    }
    assert_eq!(server.ttl::<_, i64>(name("d")).unwrap(), -1, "who asks again gives the record no end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_gone_holds_up_no_renewal() {
    let master = Redis::with(&["--repl-diskless-sync-delay", "0"]);
    let (mut replica, mut server) = replica_of(&master).await;
    let builder = RedisStore::builder(master.url()).operation_timeout(PATIENCE);
    let store = builder.wait_replicas(1, PATIENCE / 4).connect().await.unwrap();
    let (owner, grant) = granted(&store, &key("a")).await;
    replica.server().signal("-STOP");
    let other = tokio::spawn({
        let store = store.clone();
        async move { store.claim(&key("other"), &claim_request()).await }
    });
    // The other claim waits for the replica, so its connection answers nothing else.
    until_blocked(&mut server, 1).await;
    for _ in 0..5 {
        renew(&store, &key("a"), owner, grant.fence).await;
    }
    assert!(!other.is_finished(), "the renewals came after the other claim");
    replica.server().signal("-CONT");
    assert!(matches!(other.await.unwrap(), Ok(ClaimAnswer::Granted(_))));
}

/// A replica that is online, and a connection to its master.
async fn replica_of(master: &Redis) -> (Redis, Connection) {
    let replica = Redis::with(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
    let mut server = client(&master.url());
    let begin = Instant::now();
    loop {
        let info: String = cmd("INFO").arg("replication").query(&mut server).unwrap();
        if info.contains("state=online") {
            return (replica, server);
        }
        assert!(begin.elapsed() < PATIENCE, "{info}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
