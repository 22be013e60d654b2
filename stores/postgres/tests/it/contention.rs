//! Rows and tables that other transactions have locked, records that change between a look and a write, and
//! keys with many callers at once.

use std::time::Duration;

use idem_postgres::PostgresStore;
use idem_runtime::protocol::{ClaimAnswer, CompleteAnswer, Release, ReleaseAnswer, ReleaseCause};
use idem_runtime::{Store, StoreErrorKind};
use idem_test_servers::{Postgres, until};

use crate::support::*;

/// How many sessions of the test's database wait for a lock.
const WAITING: &str =
    "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";

#[tokio::test(flavor = "multi_thread")]
async fn a_record_locked_by_another_transaction_is_unavailable_and_delays_no_other_for_long() {
    let server = Postgres::shared();
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
    let server = Postgres::shared();
    let store = PostgresStore::builder(&server.url()).table("checked").connect().await.unwrap();
    run(&server, "alter table checked add check (octet_length(result) < 100)");
    let bad = completion(grant(&store, "bad").await, vec![b'x'; 200]);
    let error = store.complete(&key("bad"), &bad).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error}");
    // The server's detail shows the row and its key.
    assert!(error.to_string().contains("23514") && !format!("{error:?}").contains("bad"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_locked_for_longer_than_a_statement_may_take_changes_nothing() {
    let server = Postgres::shared();
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
    until("the server has given up", || server.sql(WAITING) == "0");
    other.rollback().await.unwrap();
    assert_eq!(server.sql("select count(*) from slow"), "0");
    grant(&store, "order").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_changes_between_the_look_and_the_write_is_looked_at_again() {
    let server = Postgres::shared();
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
        until("the write waits for the other", || server.sql(WAITING) == "1");
        let before = server.sql("select count(*) from looked_at where state = 3");
        other.commit().await.unwrap();
        assert_eq!(releasing.await.unwrap().unwrap(), ReleaseAnswer::Lost, "{name}");
        assert_eq!(server.sql("select count(*) from looked_at where state = 3"), before, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_renewed_between_the_look_and_the_write_is_not_taken_over() {
    let server = Postgres::shared();
    let minute = Duration::from_secs(60);
    let builder = PostgresStore::builder(&server.url()).table("renewed");
    let store = builder.operation_timeout(minute).lock_timeout(minute).connect().await.unwrap();
    grant(&store, "order").await;
    run(&server, "update renewed set lease_until = 1");
    let pool = sqlx::PgPool::connect(&server.url()).await.unwrap();
    let mut other = pool.begin().await.unwrap();
    sqlx::query("UPDATE renewed SET lease_until = expires_at").execute(&mut *other).await.unwrap();
    let claiming = tokio::spawn(async move { claimed(&store, "order").await });
    until("the write waits for the renewal", || server.sql(WAITING) == "1");
    other.commit().await.unwrap();
    let answer = claiming.await.unwrap().unwrap();
    assert!(matches!(answer, ClaimAnswer::Busy { .. }), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_callers_of_many_keys_in_any_order_never_wait_for_each_other_in_a_circle() {
    let server = Postgres::shared();
    let builder = builder(&server.url()).operation_timeout(Duration::from_secs(30));
    many_callers_get_through(async || builder.clone().connect().await).await;
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    assert_eq!(server.sql(deadlocks), "0");
}
