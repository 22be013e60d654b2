//! `PostgresStore` and a server that is killed, stopped, full, locked, foreign or too new.

use crate::support;

use std::time::{Duration, Instant};

use idem_postgres::PostgresStore;
use idem_runtime::protocol::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Grant, Owner, Release, ReleaseAnswer, ReleaseCause, Renew,
    RenewAnswer, StoredResult, Verdict,
};
use idem_runtime::{Key, RecordKey, Scope, Store, StoreErrorKind};
use idem_test_servers::{Postgres, until};

use support::{builder, store};

const HOUR: Duration = Duration::from_secs(3_600);

fn key(name: &str) -> RecordKey {
    RecordKey::new(Scope::new("postgres failures").unwrap(), Key::new(name).unwrap())
}

fn claim(owner: Owner) -> Claim {
    Claim::new(owner, HOUR, HOUR)
}

async fn grant(store: &PostgresStore, name: &str) -> (Owner, Grant) {
    let owner = Owner::random();
    match store.claim(&key(name), &claim(owner)).await.unwrap() {
        ClaimAnswer::Granted(grant) => (owner, grant),
        other => panic!("{other:?}"),
    }
}

fn completion(owner: Owner, grant: Grant, result: &'static [u8]) -> Complete {
    let result = StoredResult::Value(result.into());
    Complete::new(owner, grant.fence, Verdict::Completed, result, HOUR)
}

async fn is_replayed(store: &PostgresStore, name: &str) -> bool {
    matches!(store.claim(&key(name), &claim(Owner::random())).await.unwrap(), ClaimAnswer::Replay(_))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_a_killed_server_and_the_store_finds_it_again() {
    let mut server = Postgres::start();
    let store = store(&server.url()).await;
    let (owner, held) = grant(&store, "order").await;
    let (other, done) = grant(&store, "done").await;
    store.complete(&key("done"), &completion(other, done, b"kept")).await.unwrap();
    server.server().kill();
    server.restart();
    assert!(is_replayed(&store, "done").await);
    let renewal = Renew::new(owner, held.fence, HOUR);
    assert_eq!(store.renew(&key("order"), &renewal).await.unwrap(), RenewAnswer::Held);
    let done = store.complete(&key("order"), &completion(owner, held, b"late")).await;
    assert_eq!(done.unwrap(), CompleteAnswer::Done);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_grant_is_given_twice_while_the_server_is_killed_again_and_again() {
    let mut server = Postgres::start();
    let url = server.url();
    let one = builder(&url).operation_timeout(Duration::from_secs(20));
    let store = one.connect().await.unwrap();
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut granted = Vec::new();
                for number in 0..60 {
                    let owner = Owner::random();
                    let name = format!("order {number}");
                    // Asked again by the same owner until the truth is known.
                    let answer = loop {
                        match store.claim(&key(&name), &claim(owner)).await {
                            Ok(answer) => break answer,
                            Err(error) => assert!(error.is_transient(), "{error}"),
                        }
                    };
                    if let ClaimAnswer::Granted(grant) = answer {
                        granted.push(name.clone());
                        while store.complete(&key(&name), &completion(owner, grant, b"once")).await.is_err() {
                        }
                    }
                }
                granted
            })
        })
        .collect();
    for _ in 0..3 {
        // In the midst of it, as soon as the server has done something since.
        let before = server.sql("select coalesce(sum(xact_commit), 0) from pg_stat_database");
        until("it works", || {
            server.sql("select coalesce(sum(xact_commit), 0) from pg_stat_database") != before
        });
        server.server().kill();
        server.restart();
    }
    let mut granted = Vec::new();
    for caller in callers {
        granted.extend(caller.await.unwrap());
    }
    granted.sort();
    let count = granted.len();
    granted.dedup();
    assert_eq!((granted.len(), count), (60, 60));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminated_backend_is_not_noticed_by_the_caller() {
    let server = Postgres::start();
    let store = store(&server.url()).await;
    for round in 0..5 {
        let name = format!("order {round}");
        let (owner, held) = grant(&store, &name).await;
        run(
            &server,
            "select count(pg_terminate_backend(pid)) from pg_stat_activity \
             where pid <> pg_backend_pid() and backend_type = 'client backend'",
        );
        let done = store.complete(&key(&name), &completion(owner, held, b"done")).await;
        assert_eq!(done.unwrap(), CompleteAnswer::Done);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_gone_is_unavailable_within_the_operation_timeout() {
    let mut server = Postgres::start();
    let time = Duration::from_millis(600);
    let store = builder(&server.url()).operation_timeout(time).connect().await.unwrap();
    server.server().kill();
    let begin = Instant::now();
    let error = store.claim(&key("order"), &claim(Owner::random())).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(begin.elapsed() < 3 * time, "{:?}", begin.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_leaves_the_outcome_unknown_within_bounds() {
    let mut server = Postgres::start();
    let time = Duration::from_millis(600);
    let store = builder(&server.url()).operation_timeout(time).connect().await.unwrap();
    grant(&store, "warm").await;
    let backend = server.sql(
        "select pid from pg_stat_activity where pid <> pg_backend_pid() and backend_type = 'client backend'",
    );
    let stop = |signal: &str| {
        for pid in backend.lines() {
            assert!(std::process::Command::new("kill").args([signal, pid]).status().unwrap().success());
        }
    };
    stop("-STOP");
    server.server().signal("-STOP");
    let begin = Instant::now();
    let owner = Owner::random();
    let error = store.claim(&key("order"), &claim(owner)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{error}");
    assert!(begin.elapsed() < 4 * time, "{:?}", begin.elapsed());
    server.server().signal("-CONT");
    stop("-CONT");
    // The truth is there for who asks again.
    let answer = store.claim(&key("order"), &claim(owner)).await.unwrap();
    assert!(matches!(answer, ClaimAnswer::Granted(_)), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_locked_by_another_transaction_is_unavailable_and_delays_no_other_for_long() {
    let server = Postgres::start();
    let store = PostgresStore::builder(&server.url())
        .table("locked")
        .connections(1)
        .operation_timeout(Duration::from_secs(6))
        .lock_timeout(Duration::from_millis(100))
        .connect()
        .await
        .unwrap();
    let (owner, held) = grant(&store, "locked").await;
    let (free_owner, free) = grant(&store, "free").await;
    let pool = sqlx::PgPool::connect(&server.url()).await.unwrap();
    let mut other = pool.begin().await.unwrap();
    sqlx::query("SELECT FROM locked WHERE key = 'locked'::bytea FOR UPDATE")
        .fetch_all(&mut *other)
        .await
        .unwrap();
    // They travel together, and one is refused: an error is its own operation's alone.
    let names = [key("locked"), key("free")];
    let results = [completion(owner, held, b"1"), completion(free_owner, free, b"2")];
    let (locked, free) =
        tokio::join!(store.complete(&names[0], &results[0]), store.complete(&names[1], &results[1]));
    let error = locked.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("55P03"), "{error}");
    assert_eq!(free.unwrap(), CompleteAnswer::Done);
    other.rollback().await.unwrap();
    assert_eq!(store.complete(&names[0], &results[0]).await.unwrap(), CompleteAnswer::Done);
}

#[tokio::test]
async fn of_operations_that_travel_together_only_the_one_that_is_refused_fails() {
    let server = Postgres::start();
    let store =
        PostgresStore::builder(&server.url()).table("checked").connections(1).connect().await.unwrap();
    run(&server, "alter table checked add check (octet_length(result) < 100)");
    let mut held = Vec::new();
    for name in ["first", "good", "bad"] {
        held.push((key(name), grant(&store, name).await));
    }
    let pool = sqlx::PgPool::connect(&server.url()).await.unwrap();
    let mut other = pool.begin().await.unwrap();
    let lock = "SELECT FROM checked WHERE key = 'first'::bytea FOR UPDATE";
    sqlx::query(lock).fetch_all(&mut *other).await.unwrap();
    let results: [&'static [u8]; 3] = [b"small", b"small", &[b'x'; 200]];
    let requests: Vec<_> = held
        .iter()
        .zip(results)
        .map(|((_, (owner, grant)), result)| completion(*owner, *grant, result))
        .collect();
    // All three travel together; then each goes alone, and the first waits for the other transaction.
    let release = async {
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        let waiting =
            async { while sqlx::query_scalar::<_, i64>(waits).fetch_one(&pool).await.unwrap() == 0 {} };
        tokio::time::timeout(Duration::from_secs(5), waiting).await.expect("the first waits");
        other.rollback().await.unwrap();
    };
    let (first, good, bad, ()) = tokio::join!(
        store.complete(&held[0].0, &requests[0]),
        store.complete(&held[1].0, &requests[1]),
        store.complete(&held[2].0, &requests[2]),
        release
    );
    assert_eq!((first.unwrap(), good.unwrap()), (CompleteAnswer::Done, CompleteAnswer::Done));
    let error = bad.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error}");
    // What the server tells of the row, its key among it, goes no further.
    assert!(error.to_string().contains("23514") && !format!("{error:?}").contains("bad"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_that_are_stuck_hold_up_those_behind_them_for_a_moment_only() {
    let server = Postgres::start();
    let store = PostgresStore::builder(&server.url())
        .table("stuck")
        .connections(16)
        .operation_timeout(Duration::from_secs(40))
        .lock_timeout(Duration::from_secs(30))
        .connect()
        .await
        .unwrap();
    let mut held = Vec::new();
    for number in 0..20 {
        let name = format!("stuck {number}");
        let (owner, grant) = grant(&store, &name).await;
        held.push((key(&name), completion(owner, grant, b"late")));
    }
    let pool = sqlx::PgPool::connect(&server.url()).await.unwrap();
    let mut other = pool.begin().await.unwrap();
    sqlx::query("SELECT FROM stuck FOR UPDATE").fetch_all(&mut *other).await.unwrap();
    let completing = tokio::spawn({
        let store = store.clone();
        async move {
            let all = held.iter().map(|(key, request)| store.complete(key, request));
            futures_util::future::try_join_all(all).await
        }
    });
    until("they wait for the locks", || {
        let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
        server.sql(waits) != "0"
    });
    // Far less than what the locks are waited for.
    let claimed = tokio::time::timeout(Duration::from_secs(10), grant(&store, "free")).await;
    assert!(claimed.is_ok(), "a claim waited for completions that wait for locks");
    assert!(!completing.is_finished());
    other.rollback().await.unwrap();
    let done = completing.await.unwrap().unwrap();
    assert_eq!(done, vec![CompleteAnswer::Done; 20]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_locked_for_longer_than_a_statement_may_take_changes_nothing() {
    let server = Postgres::start();
    let store = PostgresStore::builder(&server.url())
        .table("slow")
        .operation_timeout(Duration::from_millis(300))
        .lock_timeout(HOUR)
        .connect()
        .await
        .unwrap();
    let pool = sqlx::PgPool::connect(&server.url()).await.unwrap();
    let mut other = pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE slow IN ACCESS EXCLUSIVE MODE").execute(&mut *other).await.unwrap();
    let error = store.claim(&key("order"), &claim(Owner::random())).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    other.rollback().await.unwrap();
    until("the server has given up", || server.sql("select count(*) from slow") == "0");
    grant(&store, "order").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_free_connection_slot_callers_get_through_as_soon_as_there_is_one() {
    let server = Postgres::with(&["fsync=off", "max_connections=12", "superuser_reserved_connections=0"]);
    let store = builder(&server.url()).connections(2).connect().await.unwrap();
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(12).connect(&server.url()).await.unwrap();
    let mut taken = Vec::new();
    while let Ok(connection) = tokio::time::timeout(Duration::from_millis(300), pool.acquire()).await {
        match connection {
            Ok(connection) => taken.push(connection),
            Err(_) => break,
        }
    }
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { grant(&store, "order").await }
    });
    for connection in taken {
        connection.close().await.unwrap();
    }
    waiting.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_that_start_at_once_make_one_table_and_all_can_use_it() {
    let server = Postgres::start();
    for table in ["one", "two", "three"] {
        let starting: Vec<_> = (0..10)
            .map(|_| {
                let url = server.url();
                tokio::spawn(async move {
                    PostgresStore::builder(&url).schema("made_here").table(table).connect().await
                })
            })
            .collect();
        let mut stores = Vec::new();
        for store in starting {
            stores.push(store.await.unwrap().unwrap());
        }
        let (owner, held) = grant(&stores[0], "order").await;
        stores[9].complete(&key("order"), &completion(owner, held, b"done")).await.unwrap();
        assert!(is_replayed(&stores[4], "order").await);
    }
    assert_eq!(server.sql("select count(*) from made_here.one_meta where name = 'schema_version'"), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_work_is_a_configuration_error_that_says_so() {
    let server = Postgres::start();
    let url = server.url();
    let connect = |url: String, table: &'static str| async move {
        PostgresStore::builder(&url).table(table).operation_timeout(Duration::from_secs(2)).connect().await
    };
    connect(url.clone(), "kept").await.unwrap();
    run(&server, "update kept_meta set value = 99 where name = 'schema_version'");
    run(&server, "create table foreign_meta (name text, value bigint)");
    run(&server, "create role reader login");
    let as_reader = url.replace("postgres@", "reader@");
    let no_database = format!("{}absent", url.trim_end_matches("postgres"));
    for (url, table, said) in [
        (url.clone(), "kept", "use a newer idem"),
        (url.clone(), "foreign", "not idem's"),
        (url.clone(), "no;table", "letters, digits or underscores"),
        (as_reader, "refused", "42501"),
        (no_database, "absent", "3D000"),
        ("mysql://x".into(), "absent", "must begin with"),
        (url.replace("postgres@", "nobody_here@"), "absent", "28000"),
    ] {
        let error = connect(url, table).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_no_record_is_reported_by_its_digest_and_never_run_over() {
    let server = Postgres::start();
    let store = PostgresStore::builder(&server.url()).table("spoilt").connect().await.unwrap();
    let (owner, held) = grant(&store, "order 4711").await;
    store.complete(&key("order 4711"), &completion(owner, held, b"secret")).await.unwrap();
    for change in ["state = 77", "result = null", "owner = 'short'", "attempt = -1", "fingerprint = 'x'"] {
        run(&server, "create table if not exists kept as select * from spoilt");
        run(&server, &format!("update spoilt set {change}"));
        let error = store.claim(&key("order 4711"), &claim(Owner::random())).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::CorruptRecord, "{change}: {error}");
        let said = format!("{error} {error:?}");
        assert!(said.contains(&key("order 4711").digest().to_string()) && !said.contains("4711"), "{said}");
        run(&server, "delete from spoilt");
        run(&server, "insert into spoilt select * from kept");
    }
    assert!(is_replayed(&store, "order 4711").await);
}

#[test]
fn a_lease_is_renewed_and_a_result_recorded_while_the_callers_runtime_is_blocked_or_gone() {
    let server = Postgres::start();
    let url = server.url();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let (store, owner, held) = first.block_on(async {
        let store = store(&url).await;
        let (owner, held) = grant(&store, "order").await;
        (store, owner, held)
    });
    // Nothing drives the first runtime any more; another thread renews for it, as the keeper does.
    let renewal = Renew::new(owner, held.fence, HOUR);
    let entered = first.enter();
    let renewed = std::thread::scope(|scope| {
        let renewing = scope.spawn(|| {
            let _entered = first.enter();
            futures_executor(store.renew(&key("order"), &renewal))
        });
        renewing.join().unwrap()
    });
    assert_eq!(renewed.unwrap(), RenewAnswer::Held);
    drop(entered);
    drop(first);
    let second = runtime();
    second.block_on(async {
        let done = store.complete(&key("order"), &completion(owner, held, b"done")).await.unwrap();
        assert_eq!(done, CompleteAnswer::Done);
        assert!(is_replayed(&store, "order").await);
    });
}

fn run(server: &Postgres, statement: &str) {
    let _ = server.sql(statement);
}

/// Polls a future on this thread, in no runtime of its own.
fn futures_executor<T>(future: impl Future<Output = T>) -> T {
    struct Thread(std::thread::Thread);
    impl std::task::Wake for Thread {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Thread(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        std::thread::park();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_and_a_busy_answer_write_nothing_by_the_servers_own_counters() {
    let server = Postgres::start();
    let store =
        PostgresStore::builder(&server.url()).table("counted").connections(1).connect().await.unwrap();
    for number in 0..50 {
        let name = format!("order {number}");
        let (owner, held) = grant(&store, &name).await;
        store.complete(&key(&name), &completion(owner, held, b"done")).await.unwrap();
    }
    let (_, busy) = grant(&store, "busy").await;
    assert!(!busy.lease_left.is_zero());
    let replays = || async {
        for round in 0..4 {
            for number in 0..50 {
                assert!(is_replayed(&store, &format!("order {number}")).await, "{round}");
            }
            let answer = store.claim(&key("busy"), &claim(Owner::random())).await.unwrap();
            assert!(matches!(answer, ClaimAnswer::Busy { .. }));
        }
    };
    // What earlier writes left on the pages is cleaned up first, and is not a replay's.
    run(&server, "vacuum (freeze) counted");
    replays().await;
    run(&server, "checkpoint");
    let position = || server.sql("select pg_current_wal_insert_lsn()");
    let rows = "select n_tup_ins, n_tup_upd, n_tup_del, n_dead_tup from pg_stat_user_tables where relname = 'counted'";
    let counted = || server.sql(rows);
    // A session tells what it did only now and then, and when it ends.
    until("the writes are counted", || counted() == "51|50|0|50" || counted() == "51|50|0|0");
    let (before, rows_before) = (position(), counted());
    replays().await;
    let after = position();
    assert_eq!(server.sql(&format!("select '{after}'::pg_lsn - '{before}'::pg_lsn")), "0");
    drop(store);
    let others = "select count(*) from pg_stat_activity \
                  where backend_type = 'client backend' and pid <> pg_backend_pid()";
    until("the store's sessions are over", || server.sql(others) == "0");
    assert_eq!(counted(), rows_before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_call_is_two_statements_and_a_replay_is_one() {
    let mut server = Postgres::with(&["fsync=off", "log_statement=all"]);
    let store = builder(&server.url()).connections(1).connect().await.unwrap();
    let mut told = 0;
    let mut since = |server: &mut Postgres| {
        let all = server.server().log().matches("LOG:  execute ").count();
        std::mem::replace(&mut told, all).abs_diff(all)
    };
    since(&mut server);
    for number in 0..20 {
        let name = format!("order {number}");
        let (owner, held) = grant(&store, &name).await;
        store.complete(&key(&name), &completion(owner, held, b"done")).await.unwrap();
    }
    assert_eq!(since(&mut server), 40);
    for number in 0..20 {
        assert!(is_replayed(&store, &format!("order {number}")).await);
    }
    assert_eq!(since(&mut server), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_is_dropped_leaves_the_connection_as_good_as_before() {
    let server = Postgres::start();
    let store = builder(&server.url()).connections(1).connect().await.unwrap();
    for number in 0..200 {
        let name = key(&format!("order {number}"));
        let request = claim(Owner::random());
        let asked = store.claim(&name, &request);
        tokio::select! { biased; _ = asked => {}, () = tokio::task::yield_now() => {} }
    }
    let (owner, held) = grant(&store, "last").await;
    let request = Release::new(owner, held.fence, ReleaseCause::Failed);
    assert_eq!(store.release(&key("last"), &request).await.unwrap(), ReleaseAnswer::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_changes_between_the_look_and_the_write_is_looked_at_again() {
    let server = Postgres::start();
    let store = PostgresStore::builder(&server.url())
        .table("looked_at")
        .lock_timeout(Duration::from_secs(4))
        .connect()
        .await
        .unwrap();
    let pool = sqlx::PgPool::connect(&server.url()).await.unwrap();
    let changes = [
        "state = 1, completed_at = 1, result = 'r'",
        "fence = fence + 1",
        "owner = decode(repeat('ab', 16), 'hex')",
        "state = 4, expires_at = null, owner = decode(repeat('cd', 16), 'hex')",
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let name = format!("order {number}");
        let (owner, held) = grant(&store, &name).await;
        let mut other = pool.begin().await.unwrap();
        let change = format!("UPDATE looked_at SET {change} WHERE key = '{name}'::bytea");
        sqlx::query(sqlx::AssertSqlSafe(change)).execute(&mut *other).await.unwrap();
        let releasing = tokio::spawn({
            let (store, name) = (store.clone(), name.clone());
            let request = Release::new(owner, held.fence, ReleaseCause::Failed);
            async move { store.release(&key(&name), &request).await }
        });
        let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
        until("the write waits for the other", || server.sql(waits) == "1");
        let before = server.sql("select count(*) from looked_at where state = 3");
        other.commit().await.unwrap();
        assert_eq!(releasing.await.unwrap().unwrap(), ReleaseAnswer::Lost, "{name}");
        assert_eq!(server.sql("select count(*) from looked_at where state = 3"), before, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_callers_of_many_keys_in_any_order_never_wait_for_each_other_in_a_circle() {
    let server = Postgres::start();
    let url = server.url();
    let table = support::new_table();
    let mut callers = Vec::new();
    for process in 0..3_usize {
        let store = PostgresStore::builder(&url).table(&table).connect().await.unwrap();
        for caller in 0..40_usize {
            let store = store.clone();
            callers.push(tokio::spawn(async move {
                for round in 0..20 {
                    let name = format!("order {}", (process * 7 + caller * 13 + round * 29) % 30);
                    let owner = Owner::random();
                    if let ClaimAnswer::Granted(grant) =
                        store.claim(&key(&name), &claim(owner)).await.unwrap()
                    {
                        let request = Release::new(owner, grant.fence, ReleaseCause::Failed);
                        assert_eq!(
                            store.release(&key(&name), &request).await.unwrap(),
                            ReleaseAnswer::Released
                        );
                    }
                }
            }));
        }
    }
    for caller in callers {
        caller.await.unwrap();
    }
    assert_eq!(server.sql("select deadlocks from pg_stat_database where datname = 'postgres'"), "0");
}
