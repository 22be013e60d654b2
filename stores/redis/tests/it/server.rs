//! Tests of `RedisStore` when its server fails: restarts, cut connections, lost and late answers, and a full
//! memory.

mod access;
mod replicas;

use crate::support;

use std::time::{Duration, Instant};

use idem_redis::RedisStore;
use idem_runtime::protocol::CompleteAnswer;
use idem_runtime::{Store, StoreErrorKind};
use idem_test_servers::Redis;
use redis::{Connection, cmd};
use support::*;

#[tokio::test]
async fn with_a_log_on_disk_every_step_survives_kill_9() {
    let mut redis = Redis::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let store = connect(&redis).await;
    complete(&store, &key("done"), b"r").await;
    let (owner, grant) = granted(&store, &key("running")).await;
    let before = store.get(&key("running")).await.unwrap();
    redis.server().kill();
    redis.server().restart();
    assert_eq!(replayed(&store, &key("done")).await, b"r");
    assert_eq!(store.get(&key("running")).await.unwrap(), before);
    renew(&store, &key("running"), owner, grant.fence).await;
    finish(&store, &key("running"), owner, grant.fence, b"s").await;
}

/// Upper limit for an operation with a short timeout. It is less than the default timeout, and more than the
/// time for which a busy machine stops a process.
const SOON: Duration = Duration::from_millis(4_800);

#[tokio::test]
async fn a_server_that_is_gone_is_unavailable_within_the_operation_timeout() {
    let mut redis = Redis::start();
    let store = hasty(&redis).await;
    known(async || store.claim(&key("a"), &claim_request()).await).await;
    redis.server().kill();
    // If the request was sent on one of the two broken connections, its outcome is unknown, and `refused`
    // repeats it.
    let error = refused(async || {
        let begin = Instant::now();
        let answer = store.claim(&key("b"), &claim_request()).await;
        assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
        answer
    });
    let error = error.await;
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error:?}");
    let connect = || RedisStore::builder(redis.url()).operation_timeout(Duration::from_millis(500)).connect();
    let error = refused(async || connect().await).await;
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error:?}");
}

#[tokio::test]
async fn a_server_that_forgot_the_scripts_is_told_them_again() {
    let redis = Redis::start();
    let (store, mut server) = (connect(&redis).await, client(&redis.url()));
    for number in 0..3 {
        let key = key(&number.to_string());
        let flush = |server: &mut Connection| cmd("SCRIPT").arg("FLUSH").query::<()>(server).unwrap();
        flush(&mut server);
        let (owner, grant) = granted(&store, &key).await;
        flush(&mut server);
        renew(&store, &key, owner, grant.fence).await;
        flush(&mut server);
        finish(&store, &key, owner, grant.fence, b"r").await;
    }
}

#[tokio::test]
async fn a_stopped_server_leaves_the_outcome_unknown_and_the_same_owner_finds_it_out() {
    let mut redis = Redis::start();
    let (store, patient) = (hasty(&redis).await, connect(&redis).await);
    let (owner, grant) = granted(&patient, &key("a")).await;
    // Repeats the read, so that the connection of this runtime is open and used.
    for _ in 0..20 {
        known(async || store.get(&key("a")).await).await;
    }
    redis.server().signal("-STOP");
    let begin = Instant::now();
    let (complete, claim) = (completion(owner, grant.fence, b"r"), claim_request());
    let (a, b) = (key("a"), key("b"));
    let (completed, claimed) = tokio::join!(store.complete(&a, &complete), store.claim(&b, &claim));
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    for error in [completed.unwrap_err(), claimed.unwrap_err()] {
        assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{error:?}");
    }
    redis.server().signal("-CONT");
    assert_eq!(known(async || store.complete(&a, &complete).await).await, CompleteAnswer::Done);
    assert_eq!(replayed(&patient, &a).await, b"r");
    let grant = granted_as(&patient, &b, &claim).await;
    assert_eq!(grant.attempt, 1);
    let record = patient.get(&b).await.unwrap().unwrap();
    assert_eq!((record.owner, record.fence), (claim.owner, grant.fence));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forget_deletes_no_record_that_came_after_the_one_it_read() {
    let redis = Redis::start();
    let (store, another) = (connect(&redis).await, connect(&redis).await);
    complete(&store, &key("a"), b"r").await;
    let mut server = client(&redis.url());
    let () = cmd("CLIENT").arg("PAUSE").arg(60_000).arg("WRITE").query(&mut server).unwrap();
    // Three writes wait in this order: a deletion, a claim, and the write of `forget`. The `forget` has read
    // the record before the deletion.
    let url = redis.url();
    let deleting =
        std::thread::spawn(move || cmd("DEL").arg(name("a")).query::<()>(&mut client(&url)).unwrap());
    until_blocked(&mut server, 1).await;
    let claiming = tokio::spawn(async move { granted(&another, &key("a")).await });
    until_blocked(&mut server, 2).await;
    let forgetting = tokio::spawn({
        let store = store.clone();
        async move { store.forget(&key("a")).await.unwrap() }
    });
    until_blocked(&mut server, 3).await;
    let () = cmd("CLIENT").arg("UNPAUSE").query(&mut server).unwrap();
    deleting.join().unwrap();
    let (_, grant) = claiming.await.unwrap();
    assert!(forgetting.await.unwrap());
    assert_eq!(store.get(&key("a")).await.unwrap().unwrap().fence, grant.fence);
}

#[tokio::test]
async fn a_server_without_memory_refuses_to_write_says_so_and_still_replays() {
    let redis = Redis::with(&["--maxmemory-policy", "noeviction"]);
    let (store, hasty) = (connect(&redis).await, hasty(&redis).await);
    let mut server = client(&redis.url());
    complete(&store, &key("done"), b"r").await;
    let (owner, grant) = granted(&store, &key("running")).await;
    let () = cmd("CONFIG").arg("SET").arg("maxmemory").arg(1).query(&mut server).unwrap();
    let complete = completion(owner, grant.fence, b"s");
    for error in [
        refused(async || hasty.claim(&key("fresh"), &claim_request()).await).await,
        refused(async || hasty.complete(&key("running"), &complete).await).await,
    ] {
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error:?}");
        assert!(error.to_string().contains("maxmemory"), "{error}");
    }
    assert_eq!(replayed(&store, &key("done")).await, b"r");
    let () = cmd("CONFIG").arg("SET").arg("maxmemory").arg(0).query(&mut server).unwrap();
    assert_eq!(store.complete(&key("running"), &complete).await.unwrap(), CompleteAnswer::Done);
    assert_eq!(store.get(&key("fresh")).await.unwrap(), None, "the refused claim left nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_was_lost_stays_an_unknown_outcome_when_the_next_try_is_refused() {
    let redis = Redis::start();
    let mut server = client(&redis.url());
    let () = cmd("ACL").arg(&["SETUSER", "shop", "on", ">secret", "~*", "+@all"]).query(&mut server).unwrap();
    let url = redis.url().replace("redis://", "redis://shop:secret@");
    let store = RedisStore::builder(&url).operation_timeout(PATIENCE).connect().await.unwrap();
    // Opens the connection of this runtime.
    complete_all(&store, "", 20).await;
    let () = cmd("CLIENT").arg("PAUSE").arg(60_000).arg("WRITE").query(&mut server).unwrap();
    let asked = tokio::spawn({
        let store = store.clone();
        async move { store.claim(&key("a"), &claim_request()).await }
    });
    until_blocked(&mut server, 1).await;
    let () = cmd("ACL").arg(&["SETUSER", "shop", "-evalsha", "-eval"]).query(&mut server).unwrap();
    let kill = ["KILL", "TYPE", "normal", "SKIPME", "yes"];
    let () = cmd("CLIENT").arg(&kill).query(&mut server).unwrap();
    let error = asked.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{error:?}");
    let refused = store.claim(&key("b"), &claim_request()).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Configuration, "{refused:?}");
}
