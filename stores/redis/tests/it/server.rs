//! Tests of `RedisStore` when something happens to its server: restarts, lost and late answers, a full memory, a
//! replica.

use crate::support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use idem_redis::RedisStore;
use idem_runtime::protocol::{
    ClaimAnswer, CompleteAnswer, RecordStep, RecordStepAnswer, RecordedStep, Release, ReleaseAnswer,
    ReleaseCause, Renew, RenewAnswer, State, StoredResult,
};
use idem_runtime::{Store, StoreError, StoreErrorKind};
use idem_test_servers::Redis;
use redis::{Commands as _, Connection, cmd};
use support::*;

async fn connect(redis: &Redis) -> RedisStore {
    RedisStore::connect(redis.url()).await.unwrap()
}

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
    assert_eq!(store.renew(&key("running"), &renewal(owner, grant.fence)).await.unwrap(), RenewAnswer::Held);
    let done = store.complete(&key("running"), &completion(owner, grant.fence, b"s")).await.unwrap();
    assert_eq!(done, CompleteAnswer::Done);
}

#[tokio::test]
async fn without_a_disk_a_restart_forgets_and_fences_still_rise() {
    let mut redis = Redis::start();
    let store = connect(&redis).await;
    let (owner, grant) = granted(&store, &key("a")).await;
    redis.server().kill();
    redis.server().restart();
    let lost = store.complete(&key("a"), &completion(owner, grant.fence, b"r")).await.unwrap();
    assert_eq!(lost, CompleteAnswer::Lost, "the worker of before must not record over the next");
    assert!(granted(&store, &key("a")).await.1.fence > grant.fence);
}

#[tokio::test]
async fn a_server_that_comes_back_within_the_operation_timeout_is_waited_for() {
    // With `everysec`, a write waits while the disk is busy, and a kill loses it.
    let mut redis = Redis::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let store = connect(&redis).await;
    complete(&store, &key("a"), b"r").await;
    redis.server().kill();
    let asked = tokio::spawn({
        let store = store.clone();
        async move { replayed(&store, &key("a")).await }
    });
    // The subject of the test: the server is away for a moment.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!asked.is_finished());
    redis.server().restart();
    assert_eq!(asked.await.unwrap(), b"r");
}

#[tokio::test]
async fn a_server_that_is_gone_is_unavailable_within_the_operation_timeout() {
    let mut redis = Redis::start();
    let store = hasty(&redis.url()).connect().await.unwrap();
    granted(&store, &key("a")).await;
    redis.server().kill();
    // The request may have been sent on each of the two connections that broke.
    for _ in 0..2 {
        store.claim(&key("b"), &claim_request()).await.unwrap_err();
    }
    let begin = Instant::now();
    let error = store.claim(&key("c"), &claim_request()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error:?}");
    assert!(begin.elapsed() < Duration::from_secs(3));
    let error = hasty(&redis.url()).connect().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_cut_lose_no_call() {
    let redis = Redis::start();
    let store = connect(&redis).await;
    let mut server = client(&redis.url());
    let completed = Arc::new(AtomicU64::new(0));
    let calls: Vec<_> = (0..40)
        .map(|number| {
            let (store, completed) = (store.clone(), completed.clone());
            tokio::spawn(async move {
                for round in 0..20 {
                    complete(&store, &key(&format!("{number}/{round}")), b"r").await;
                    completed.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let (mut cut, mut seen) = (0, 0);
    while !calls.iter().all(tokio::task::JoinHandle::is_finished) {
        // On any machine, some operations complete between two cuts.
        let now = completed.load(Ordering::Relaxed);
        if std::mem::replace(&mut seen, now) == now {
            tokio::task::yield_now().await;
            continue;
        }
        cut += cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").query::<u64>(&mut server).unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    for call in calls {
        call.await.unwrap();
    }
    assert!(cut > 3, "{cut} connections were cut");
    for number in 0..40 {
        let record = store.get(&key(&format!("{number}/19"))).await.unwrap().unwrap();
        assert_eq!((record.state, record.attempt), (State::Completed, 1));
    }
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
        assert_eq!(store.renew(&key, &renewal(owner, grant.fence)).await.unwrap(), RenewAnswer::Held);
        flush(&mut server);
        let done = store.complete(&key, &completion(owner, grant.fence, b"r")).await.unwrap();
        assert_eq!(done, CompleteAnswer::Done);
    }
}

#[tokio::test]
async fn a_late_answer_is_an_unknown_outcome_and_the_same_owner_finds_out() {
    let redis = Redis::start();
    let store = hasty(&redis.url()).connect().await.unwrap();
    let mut server = client(&redis.url());
    for number in 0..20 {
        complete(&store, &key(&number.to_string()), b"r").await;
    }
    let () = cmd("CLIENT").arg("PAUSE").arg(2_500).arg("ALL").query(&mut server).unwrap();
    let (request, begin) = (claim_request(), Instant::now());
    let error = store.claim(&key("a"), &request).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{error:?}");
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    let mut answer = store.claim(&key("a"), &request).await;
    while answer.is_err() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{answer:?}");
        answer = store.claim(&key("a"), &request).await;
    }
    let ClaimAnswer::Granted(grant) = answer.unwrap() else { panic!("the owner is told another's answer") };
    assert_eq!(grant.attempt, 1);
    let record = store.get(&key("a")).await.unwrap().unwrap();
    assert_eq!((record.owner, record.fence), (request.owner, grant.fence));
}

#[tokio::test]
async fn a_stopped_server_holds_nobody_up_for_longer_than_the_operation_timeout() {
    let mut redis = Redis::start();
    let store = hasty(&redis.url()).connect().await.unwrap();
    // Repeats until the caller's own connection is open and used.
    for number in 0..20 {
        complete(&store, &key(&number.to_string()), b"r").await;
    }
    let (owner, grant) = granted(&store, &key("a")).await;
    redis.server().signal("-STOP");
    let begin = Instant::now();
    let complete = completion(owner, grant.fence, b"r");
    let error = store.complete(&key("a"), &complete).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{error:?}");
    assert!(begin.elapsed() < Duration::from_secs(3));
    redis.server().signal("-CONT");
    assert_eq!(store.complete(&key("a"), &complete).await.unwrap(), CompleteAnswer::Done);
    assert_eq!(replayed(&store, &key("a")).await, b"r");
}

#[tokio::test]
async fn a_forget_that_may_have_been_done_is_not_asked_again() {
    let mut redis = Redis::start();
    // One try takes a third of this time.
    let time = Duration::from_secs(3);
    let store = RedisStore::builder(redis.url()).operation_timeout(time).connect().await.unwrap();
    complete(&store, &key("a"), b"r").await;
    redis.server().signal("-STOP");
    let begin = Instant::now();
    let error = store.forget(&key("a")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{error:?}");
    assert!(begin.elapsed() < Duration::from_secs(2), "it was asked for {:?}", begin.elapsed());
    redis.server().signal("-CONT");
}

#[tokio::test]
async fn a_server_without_memory_refuses_to_write_says_so_and_still_replays() {
    let redis = Redis::with(&["--maxmemory-policy", "noeviction"]);
    let store = hasty(&redis.url()).connect().await.unwrap();
    let mut server = client(&redis.url());
    complete(&store, &key("done"), b"r").await;
    let (owner, grant) = granted(&store, &key("running")).await;
    let () = cmd("CONFIG").arg("SET").arg("maxmemory").arg(1).query(&mut server).unwrap();
    let error = store.claim(&key("fresh"), &claim_request()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains("maxmemory"), "{error}");
    let complete = completion(owner, grant.fence, b"s");
    assert_eq!(
        store.complete(&key("running"), &complete).await.unwrap_err().kind(),
        StoreErrorKind::Unavailable
    );
    assert_eq!(replayed(&store, &key("done")).await, b"r");
    let () = cmd("CONFIG").arg("SET").arg("maxmemory").arg(0).query(&mut server).unwrap();
    assert_eq!(store.complete(&key("running"), &complete).await.unwrap(), CompleteAnswer::Done);
    assert_eq!(store.get(&key("fresh")).await.unwrap(), None, "the refused claim left nothing");
}

#[tokio::test]
async fn a_password_that_is_wrong_is_a_matter_of_configuration_and_is_not_repeated() {
    let redis = Redis::with(&["--requirepass", "the-right-secret"]);
    let host = redis.url().replace("redis://", "");
    for login in ["", ":the-wrong-secret@"] {
        let error = hasty(&format!("redis://{login}{host}")).connect().await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error:?}");
        assert!(!format!("{error:?}{error}").contains("secret"), "{error:?}");
    }
    let store = RedisStore::connect(format!("redis://:the-right-secret@{host}")).await.unwrap();
    granted(&store, &key("a")).await;
    assert!(!format!("{store:?}").contains("secret"));
}

#[tokio::test]
async fn settings_out_of_their_range_are_refused() {
    let builder = || RedisStore::builder("redis://127.0.0.1:1/");
    for wrong in [
        builder().prefix("{idem}"),
        builder().operation_timeout(Duration::ZERO),
        builder().operation_timeout(Duration::MAX),
        builder().max_result_bytes(0),
        builder().max_result_bytes(usize::MAX),
        builder().wait_replicas(0, Duration::from_millis(100)),
        builder().wait_replicas(1, Duration::ZERO),
        builder().wait_replicas(1, Duration::from_secs(3)),
        RedisStore::builder("http://127.0.0.1/"),
        RedisStore::builder("not a url"),
    ] {
        let error = wrong.connect().await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error:?}");
    }
}

#[tokio::test]
async fn what_weakens_the_guarantee_is_said_at_connect_and_no_more_than_that() {
    for (arguments, events) in [
        (&["--appendonly", "yes"][..], &[][..]),
        (&["--save", "3600 1"], &[]),
        (&[], &["not_persistent"]),
        (&["--appendonly", "yes", "--maxmemory-policy", "allkeys-lru"], &["may_evict"]),
    ] {
        let (redis, log) = (Redis::with(arguments), Log::default());
        let _guard = log.here();
        connect(&redis).await;
        let text = log.text();
        for event in ["not_persistent", "may_evict", "unchecked"] {
            assert_eq!(text.contains(event), events.contains(&event), "{arguments:?}: {text}");
        }
    }
}

#[tokio::test]
async fn a_user_who_may_not_look_at_the_server_may_use_it() {
    let redis = Redis::start();
    let mut server = client(&redis.url());
    let () = cmd("ACL")
        .arg(&["SETUSER", "shop", "on", ">secret", "~idem:*", "-@all"])
        .arg(&["+evalsha", "+eval", "+get", "+set", "+append", "+del", "+time", "+ping"])
        .arg(&["+getrange", "+setrange", "+strlen", "+persist", "+pexpireat"])
        .query(&mut server)
        .unwrap();
    let url = redis.url().replace("redis://", "redis://shop:secret@");
    let log = Log::default();
    let guard = log.here();
    let store = RedisStore::connect(&url).await.unwrap();
    drop(guard);
    assert!(log.text().contains("unchecked"), "{}", log.text());
    complete(&store, &key("a"), b"r").await;
    assert_eq!(replayed(&store, &key("a")).await, b"r");
    assert!(store.forget(&key("a")).await.unwrap());
    let (owner, grant) = granted(&store, &key("a")).await;
    for (position, bytes) in [(0, 10), (1, 5_000), (2, 10)] {
        let value = StoredResult::Value(vec![7; bytes].into());
        let step = RecordedStep::new(position.to_string(), None, value);
        let request = RecordStep::new(owner, grant.fence, position, step);
        assert_eq!(store.record_step(&key("a"), &request).await.unwrap(), RecordStepAnswer::Recorded);
        assert_eq!(store.renew(&key("a"), &renewal(owner, grant.fence)).await.unwrap(), RenewAnswer::Held);
    }
    let release = Release::new(owner, grant.fence, ReleaseCause::Failed);
    assert_eq!(store.release(&key("a"), &release).await.unwrap(), ReleaseAnswer::Released);

    let elsewhere = RedisStore::builder(&url).prefix("other:").connect().await.unwrap();
    let error = elsewhere.claim(&key("a"), &claim_request()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error:?}");
    assert!(!format!("{error:?}").contains("test|a"), "{error:?}");
}

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
    replica.server().signal("-CONT");
    assert_eq!(known(async || store.complete(&key("b"), &complete).await).await, CompleteAnswer::Done);
    assert_eq!(replayed(&store, &key("b")).await, b"r");
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_was_lost_stays_an_unknown_outcome_when_the_next_try_is_refused() {
    let redis = Redis::start();
    let mut server = client(&redis.url());
    let () = cmd("ACL").arg(&["SETUSER", "shop", "on", ">secret", "~*", "+@all"]).query(&mut server).unwrap();
    let url = redis.url().replace("redis://", "redis://shop:secret@");
    let store = RedisStore::builder(&url).operation_timeout(Duration::from_secs(3)).connect().await.unwrap();
    for number in 0..20 {
        complete(&store, &key(&number.to_string()), b"the runtime has its connection").await;
    }
    let () = cmd("CLIENT").arg("PAUSE").arg(60_000).arg("WRITE").query(&mut server).unwrap();
    let asked = tokio::spawn({
        let store = store.clone();
        async move { store.claim(&key("a"), &claim_request()).await }
    });
    let begin = Instant::now();
    let mut blocked = String::new();
    while !blocked.contains("blocked_clients:1") {
        assert!(begin.elapsed() < Duration::from_secs(1), "{blocked}");
        blocked = cmd("INFO").arg("clients").query(&mut server).unwrap();
        tokio::task::yield_now().await;
    }
    let () = cmd("ACL").arg(&["SETUSER", "shop", "-evalsha", "-eval"]).query(&mut server).unwrap();
    let error = asked.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{error:?}");
    let refused = store.claim(&key("b"), &claim_request()).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Configuration, "{refused:?}");
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
