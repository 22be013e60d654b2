//! Servers with replicas: those that are waited for, that are gone, and a replica in place of its master.

use std::time::{Duration, Instant};

use idem_redis::RedisStore;
use idem_runtime::protocol::{ClaimAnswer, CompleteAnswer, Renew, RenewAnswer, State};
use idem_runtime::{Store, StoreError, StoreErrorKind};
use idem_test_servers::Redis;
use redis::{Commands as _, Connection, cmd};

use crate::support::*;

#[tokio::test]
async fn a_replica_is_refused() {
    let master = Redis::start();
    let replica = Redis::with(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
    let error = hasty(&replica.url()).connect().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error:?}");
    assert!(error.to_string().contains("replica"), "{error}");
}

#[tokio::test]
async fn too_few_replicas_count_as_not_granted_and_not_recorded() {
    let master = Redis::with(&["--repl-diskless-sync-delay", "0"]);
    let build = || hasty(&master.url()).wait_replicas(1, Duration::from_millis(200));
    let store = build().connect().await.unwrap();
    let error = store.claim(&key("a"), &claim_request()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{error:?}");
    assert!(error.to_string().contains("0 of 1 replicas"), "{error}");

    let mut replica = Redis::with(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
    let mut server = client(&master.url());
    master_has_replica(&mut server).await;
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
    // Also on another connection: that an operation was applied before does not acknowledge it.
    let another = build().connect().await.unwrap();
    assert!(another.complete(&key("b"), &complete).await.unwrap_err().is_outcome_unknown());
    assert!(another.claim(&key("b"), &claim_request()).await.unwrap_err().is_outcome_unknown());
    // Those who wait for the call take a result from a read.
    assert!(another.get(&key("b")).await.unwrap_err().is_outcome_unknown());
    replica.server().signal("-CONT");
    assert_eq!(known(async || store.complete(&key("b"), &complete).await).await, CompleteAnswer::Done);
    assert_eq!(replayed(&store, &key("b")).await, b"r");
    assert_eq!(another.get(&key("b")).await.unwrap().unwrap().state, State::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_gone_holds_up_no_renewal() {
    let master = Redis::with(&["--repl-diskless-sync-delay", "0"]);
    let mut replica = Redis::with(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
    master_has_replica(&mut client(&master.url())).await;
    let builder = RedisStore::builder(master.url()).wait_replicas(1, Duration::from_millis(1_200));
    let store = builder.connect().await.unwrap();
    let lease = Duration::from_secs(2);
    let request = claim_request().with_lease(lease);
    let ClaimAnswer::Granted(grant) = known(async || store.claim(&key("a"), &request).await).await else {
        panic!()
    };
    replica.server().signal("-STOP");
    let others: Vec<_> = (0..32)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                loop {
                    let _ = store.claim(&key(&format!("other/{number}")), &claim_request()).await;
                }
            })
        })
        .collect();
    let begin = Instant::now();
    while begin.elapsed() < lease * 3 {
        let renewal = Renew::new(request.owner, grant.fence, lease);
        let asked = Instant::now();
        assert_eq!(store.renew(&key("a"), &renewal).await.unwrap(), RenewAnswer::Held);
        assert!(asked.elapsed() < lease / 2, "a renewal took {:?}", asked.elapsed());
        // As often as an engine does.
        tokio::time::sleep(lease / 10).await;
    }
    others.iter().for_each(tokio::task::JoinHandle::abort);
    replica.server().signal("-CONT");
}

#[tokio::test]
async fn with_replicas_and_no_memory_results_are_still_replayed() {
    let master = Redis::with(&["--repl-diskless-sync-delay", "0", "--maxmemory-policy", "noeviction"]);
    let _replica = Redis::with(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
    let mut server = client(&master.url());
    master_has_replica(&mut server).await;
    let builder = RedisStore::builder(master.url()).wait_replicas(1, Duration::from_millis(1_200));
    let store = builder.connect().await.unwrap();
    let request = claim_request();
    let ClaimAnswer::Granted(grant) = known(async || store.claim(&key("done"), &request).await).await else {
        panic!()
    };
    let completion = completion(request.owner, grant.fence, b"r");
    known(async || store.complete(&key("done"), &completion).await).await;
    let before: u64 = cmd("PEXPIRETIME").arg(name("done")).query(&mut server).unwrap();
    let () = cmd("CONFIG").arg("SET").arg("maxmemory").arg(1).query(&mut server).unwrap();
    let again = known(async || store.claim(&key("done"), &claim_request()).await).await;
    assert!(matches!(again, ClaimAnswer::Replay(_)), "{again:?}");
    assert_eq!(cmd("PEXPIRETIME").arg(name("done")).query::<u64>(&mut server).unwrap(), before);
}

/// Repeats a request until its outcome is known.
async fn known<T>(mut ask: impl AsyncFnMut() -> Result<T, StoreError>) -> T {
    let begin = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => {
                assert!(error.is_outcome_unknown() && begin.elapsed() < Duration::from_secs(20), "{error:?}");
            }
        }
    }
}

/// Returns once a replica is online.
async fn master_has_replica(server: &mut Connection) {
    let begin = Instant::now();
    loop {
        let info: String = cmd("INFO").arg("replication").query(server).unwrap();
        if info.contains("state=online") {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "{info}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
