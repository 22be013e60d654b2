//! `RedisStore` and what becomes of its server: commands counted, what is stored, restarts, lost and late
//! answers, a full memory, a replica.
#![cfg(all(feature = "testing", feature = "redis"))]
#![allow(clippy::unwrap_used, clippy::panic)]

mod redis_support;

use std::time::{Duration, Instant};

use idem_runtime::protocol::{ClaimAnswer, CompleteAnswer, OnCrash, RenewAnswer, State};
use idem_runtime::{RedisStore, Store, StoreError, StoreErrorKind};
use idem_test_servers::Redis;
use redis::{Commands as _, Connection, cmd};
use redis_support::*;

async fn connect(redis: &Redis) -> RedisStore {
    RedisStore::connect(redis.url()).await.unwrap()
}

/// How often each command came over a connection; those within scripts are not counted.
fn commands(server: &mut Connection) -> Vec<(String, u64)> {
    let info: String = cmd("INFO").arg("commandstats").query(server).unwrap();
    let mut counts: Vec<_> = info
        .lines()
        .filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="))
        .map(|(name, rest)| (name.to_owned(), rest.split(',').next().unwrap().parse().unwrap()))
        .filter(|(name, _): &(String, u64)| {
            !["info", "config", "client", "hello"].contains(&name.split('|').next().unwrap())
        })
        .collect();
    counts.sort();
    counts
}

#[tokio::test]
async fn a_fresh_call_is_two_commands_and_a_replay_is_one() {
    let redis = Redis::start();
    let (store, mut server) = (connect(&redis).await, client(&redis.url()));
    complete(&store, &key("the scripts are loaded"), b"r").await;
    for (calls, expected) in [(10, 20), (0, 0)] {
        let () = cmd("CONFIG").arg("RESETSTAT").query(&mut server).unwrap();
        for number in 0..calls {
            complete(&store, &key(&number.to_string()), b"r").await;
        }
        let evalsha = commands(&mut server).iter().find(|(name, _)| name == "evalsha").map_or(0, |(_, n)| *n);
        assert_eq!(evalsha, expected);
    }
    let () = cmd("CONFIG").arg("RESETSTAT").query(&mut server).unwrap();
    for number in 0..10 {
        assert_eq!(replayed(&store, &key(&number.to_string())).await, b"r");
    }
    let counts = commands(&mut server);
    let asked: u64 =
        counts.iter().filter(|(name, _)| name == "evalsha" || name == "script|load").map(|(_, n)| n).sum();
    // A `GET` of the store's own would be one more than the scripts make.
    let gets = counts.iter().find(|(name, _)| name == "get").map_or(0, |(_, n)| *n);
    assert_eq!(asked.max(gets), 10, "{counts:?}");
}

#[tokio::test]
async fn a_fresh_call_loads_nothing_and_asks_nothing_else() {
    let redis = Redis::start();
    let (store, mut server) = (connect(&redis).await, client(&redis.url()));
    complete(&store, &key("the scripts are loaded"), b"r").await;
    let () = cmd("CONFIG").arg("RESETSTAT").query(&mut server).unwrap();
    complete(&store, &key("a"), b"r").await;
    // Both scripts read, ask for the time and write.
    let all = [("evalsha", 2), ("get", 2), ("set", 2), ("time", 2)];
    assert_eq!(commands(&mut server), all.map(|(name, count)| (name.to_owned(), count)));
}

#[tokio::test]
async fn a_record_is_one_key_that_a_person_finds() {
    let redis = Redis::start();
    let (store, mut server) = (connect(&redis).await, client(&redis.url()));
    complete(&store, &key("order/42"), b"receipt").await;
    let keys: Vec<String> = server.keys("*").unwrap();
    assert_eq!(keys, [name("order/42")]);
    let record: Vec<u8> = server.get(name("order/42")).unwrap();
    assert_eq!((&record[..2], &record[80..]), (&b"\x01C"[..], &b"receipt"[..]));
    let used: u64 = cmd("MEMORY").arg("USAGE").arg(name("order/42")).query(&mut server).unwrap();
    assert!(used < 250, "a record with 7 bytes of result takes {used} bytes");
}

#[tokio::test]
async fn expiry_on_the_server_is_retention_and_never_the_lease() {
    let redis = Redis::start();
    let (store, mut server) = (connect(&redis).await, client(&redis.url()));
    let (owner, grant) = granted(&store, &key("a")).await;
    let left: u64 = server.pttl(name("a")).unwrap();
    let both = u64::try_from((LEASE + TTL).as_millis()).unwrap();
    assert!((both - 5_000..=both + 1).contains(&left), "{left}");
    let record = store.get(&key("a")).await.unwrap().unwrap();
    let at: u64 = cmd("PEXPIRETIME").arg(name("a")).query(&mut server).unwrap();
    let ends = record.expires_at.unwrap().as_micros();
    assert!(at + 1 >= ends.div_ceil(1_000) && at <= ends / 1_000, "{at} and {ends}");
    store.complete(&key("a"), &completion(owner, grant.fence, b"r")).await.unwrap();
    let left: u64 = server.pttl(name("a")).unwrap();
    assert!(left <= u64::try_from(TTL.as_millis()).unwrap() + 1, "{left}");

    let careful = idem_runtime::protocol::Claim { on_crash: OnCrash::InDoubt, ..claim_request() };
    store.claim(&key("b"), &careful).await.unwrap();
    assert_eq!(server.pttl::<_, i64>(name("b")).unwrap(), -1, "in flight under in_doubt");
    let short = idem_runtime::protocol::Claim { lease: Duration::ZERO, ..careful };
    store.claim(&key("c"), &short).await.unwrap();
    assert_eq!(store.claim(&key("c"), &claim_request()).await.unwrap(), ClaimAnswer::InDoubt);
    assert_eq!(server.pttl::<_, i64>(name("c")).unwrap(), -1, "in doubt");
}

#[tokio::test]
async fn another_programs_value_is_corrupt_and_stays_as_it_is() {
    let redis = Redis::start();
    let (store, mut server) = (connect(&redis).await, client(&redis.url()));
    let () = server.set(name("text"), "x".repeat(200)).unwrap();
    let () = server.set(name("short"), &[1_u8, b'I', 0, 0]).unwrap();
    let () = server.lpush(name("list"), "x").unwrap();
    let mut newer = vec![2_u8; 100];
    newer[1] = b'C';
    let () = server.set(name("newer"), newer).unwrap();
    for text in ["text", "short", "list", "newer"] {
        let (key, request) = (key(text), claim_request());
        let complete = completion(request.owner, idem_runtime::Fence::new(1), b"r");
        let renew = renewal(request.owner, idem_runtime::Fence::new(1));
        for error in [
            store.claim(&key, &request).await.unwrap_err(),
            store.complete(&key, &complete).await.unwrap_err(),
            store.renew(&key, &renew).await.unwrap_err(),
            store.get(&key).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), StoreErrorKind::CorruptRecord, "{text}: {error:?}");
            assert!(!format!("{error:?}{error}").contains(&name(text)), "{error:?}");
        }
        assert!(server.exists::<_, bool>(name(text)).unwrap());
        assert!(store.forget(&key).await.unwrap(), "an operator may take it away");
        granted(&store, &key).await;
    }
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
    let mut redis = Redis::with(&["--appendonly", "yes"]);
    let store = connect(&redis).await;
    complete(&store, &key("a"), b"r").await;
    redis.server().kill();
    let asked = tokio::spawn({
        let store = store.clone();
        async move { replayed(&store, &key("a")).await }
    });
    // The test's subject: it is away for a moment.
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
    // Each of the two connections that broke may have carried it.
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
    let calls: Vec<_> = (0..40)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                for round in 0..20 {
                    complete(&store, &key(&format!("{number}/{round}")), b"r").await;
                }
            })
        })
        .collect();
    let mut cut = 0;
    while !calls.iter().all(tokio::task::JoinHandle::is_finished) {
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
    granted(&store, &key("the scripts are loaded")).await;
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
async fn stores_with_different_prefixes_share_nothing() {
    let redis = Redis::start();
    let one = connect(&redis).await;
    let other = RedisStore::builder(redis.url()).prefix("other:").connect().await.unwrap();
    complete(&one, &key("a"), b"one").await;
    complete(&other, &key("a"), b"other").await;
    assert_eq!(replayed(&one, &key("a")).await, b"one");
    assert_eq!(replayed(&other, &key("a")).await, b"other");
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
        .arg(&["+evalsha", "+script|load", "+get", "+set", "+del", "+time", "+ping"])
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
    // On another connection too: that it was asked before, and applied, is no acknowledgement.
    let another = build().connect().await.unwrap();
    assert!(another.complete(&key("b"), &complete).await.unwrap_err().is_outcome_unknown());
    assert!(another.claim(&key("b"), &claim_request()).await.unwrap_err().is_outcome_unknown());
    replica.server().signal("-CONT");
    assert_eq!(known(async || store.complete(&key("b"), &complete).await).await, CompleteAnswer::Done);
    assert_eq!(replayed(&store, &key("b")).await, b"r");
}

/// The answer, once the outcome is known.
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
