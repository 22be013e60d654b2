//! Rows and tables that other transactions have locked, and keys with many callers at once.

use std::time::Duration;

use idem_postgres::PostgresStore;
use idem_runtime::protocol::{ClaimAnswer, CompleteAnswer, Owner, Release, ReleaseAnswer, ReleaseCause};
use idem_runtime::{Store, StoreErrorKind};
use idem_test_servers::{Postgres, until};

use crate::support::*;

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
    // Both share a batch, and one is refused: the error hits only its own operation.
    let names = [key("locked"), key("free")];
    let results = [completion((owner, held), "1"), completion((free_owner, free), "2")];
    let (locked, free) =
        tokio::join!(store.complete(&names[0], &results[0]), store.complete(&names[1], &results[1]));
    assert_eq!(free.unwrap(), CompleteAnswer::Done);
    let mut error = locked.unwrap_err();
    for _ in 0..5 {
        if !error.is_outcome_unknown() {
            break;
        }
        // The time ended in the middle of a try. Most tries end before.
        error = store.complete(&names[0], &results[0]).await.unwrap_err();
    }
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("55P03"), "{error}");
    other.rollback().await.unwrap();
    assert_eq!(store.complete(&names[0], &results[0]).await.unwrap(), CompleteAnswer::Done);
}

#[tokio::test]
async fn the_error_of_a_row_that_the_server_refuses_shows_nothing_of_it() {
    let server = Postgres::start();
    let store = PostgresStore::builder(&server.url()).table("checked").connect().await.unwrap();
    run(&server, "alter table checked add check (octet_length(result) < 100)");
    let bad = completion(grant(&store, "bad").await, vec![b'x'; 200]);
    let error = store.complete(&key("bad"), &bad).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error}");
    // The server's detail shows the row and its key.
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
        held.push((key(&name), completion((owner, grant), "late")));
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
    // Far less than `lock_timeout`.
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
        .operation_timeout(Duration::from_secs(3))
        .lock_timeout(HOUR)
        .connect()
        .await
        .unwrap();
    let pool = sqlx::PgPool::connect(&server.url()).await.unwrap();
    let mut other = pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE slow IN ACCESS EXCLUSIVE MODE").execute(&mut *other).await.unwrap();
    let error = claimed(&store, "order").await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    // The time of the statement began when a session was open, so it may end after the operation's.
    let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
    until("the server has given up", || server.sql(waiting) == "0");
    other.rollback().await.unwrap();
    assert_eq!(server.sql("select count(*) from slow"), "0");
    grant(&store, "order").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_changes_between_the_look_and_the_write_is_looked_at_again() {
    let server = Postgres::start();
    let store = PostgresStore::builder(&server.url())
        .table("looked_at")
        .operation_timeout(Duration::from_secs(30))
        .lock_timeout(Duration::from_secs(30))
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
async fn a_lease_that_is_renewed_between_the_look_and_the_write_is_not_taken_over() {
    let server = Postgres::start();
    let minute = Duration::from_secs(60);
    let builder = PostgresStore::builder(&server.url()).table("renewed");
    let store = builder.operation_timeout(minute).lock_timeout(minute).connect().await.unwrap();
    grant(&store, "order").await;
    run(&server, "update renewed set lease_until = 1");
    let pool = sqlx::PgPool::connect(&server.url()).await.unwrap();
    let mut other = pool.begin().await.unwrap();
    sqlx::query("UPDATE renewed SET lease_until = expires_at").execute(&mut *other).await.unwrap();
    let claiming = tokio::spawn(async move { claimed(&store, "order").await });
    let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
    until("the write waits for the renewal", || server.sql(waits) == "1");
    other.commit().await.unwrap();
    let answer = claiming.await.unwrap().unwrap();
    assert!(matches!(answer, ClaimAnswer::Busy { .. }), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_callers_of_many_keys_in_any_order_never_wait_for_each_other_in_a_circle() {
    let server = Postgres::start();
    let url = server.url();
    let table = new_table();
    let mut callers = Vec::new();
    for process in 0..3_usize {
        let builder = PostgresStore::builder(&url).table(&table).operation_timeout(Duration::from_secs(30));
        let store = builder.connect().await.unwrap();
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

#[tokio::test(flavor = "multi_thread")]
async fn a_fence_rises_over_one_ahead_of_the_clock() {
    let server = Postgres::shared();
    let store = PostgresStore::builder(&server.url()).table("ahead").connect().await.unwrap();
    grant(&store, "order").await;
    // As where the clock was set back since the record was written.
    let ahead = 1_u64 << 60;
    run(&server, &format!("update ahead set fence = {ahead}, expires_at = 1"));
    let (_, granted) = grant(&store, "order").await;
    assert_eq!(granted.fence.get(), ahead + 1);
}
