//! Rows and tables that other transactions have locked, records that change between a look and a write, and
//! keys with many callers at once.

use std::time::Duration;

use idem_postgres::PostgresStore;
use idem_runtime::protocol::{ClaimAnswer, CompleteAnswer, Owner, Release, ReleaseAnswer, ReleaseCause};
use idem_runtime::{Store, StoreErrorKind};
use idem_test_servers::{Postgres, until};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tokio::task::JoinSet;

use crate::support::*;

/// How many sessions of the test's database wait for a lock.
const WAITING: &str =
    "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";

#[tokio::test(flavor = "multi_thread")]
async fn a_record_locked_by_another_transaction_is_unavailable_and_delays_no_other_for_long() {
    let server = Postgres::shared();
    let builder = PostgresStore::builder(&server.url()).table("locked").connections(1);
    let builder = builder.operation_timeout(Duration::from_secs(6)).lock_timeout(Duration::from_millis(100));
    let store = builder.connect().await.unwrap();
    let (locked, free) = (grant(&store, "locked").await, grant(&store, "free").await);
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    let mut other = connection.begin().await.unwrap();
    other.execute("SELECT FROM locked WHERE key = 'locked'::bytea FOR UPDATE").await.unwrap();
    // Both completions may share a batch. The server refuses one of them, and only this one fails.
    let names = [key("locked"), key("free")];
    let results = [completion(locked, "1"), completion(free, "2")];
    let (locked, free) =
        tokio::join!(store.complete(&names[0], &results[0]), store.complete(&names[1], &results[1]));
    assert_eq!(free.unwrap(), CompleteAnswer::Done);
    let mut error = locked.unwrap_err();
    let mut tries = 1;
    while error.is_outcome_unknown() && tries < 6 {
        // Rarely, the operation timeout ends during a try. So the test tries again.
        error = store.complete(&names[0], &results[0]).await.unwrap_err();
        tries += 1;
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
    // The detail of the server's error contains the row and its key.
    assert!(error.to_string().contains("23514") && !format!("{error:?}").contains("bad"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_locked_for_longer_than_a_statement_may_take_changes_nothing() {
    let server = Postgres::shared();
    let builder = PostgresStore::builder(&server.url()).table("slow").lock_timeout(HOUR);
    let store = builder.operation_timeout(Duration::from_secs(3)).connect().await.unwrap();
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    let mut other = connection.begin().await.unwrap();
    other.execute("LOCK TABLE slow IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let error = claimed(&store, "order").await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    // The timeout of the statement began only when a session was open, so it may end later than the timeout
    // of the operation.
    until("the server has given up", || server.sql(WAITING) == "0");
    other.rollback().await.unwrap();
    assert_eq!(server.sql("select count(*) from slow"), "0");
    grant(&store, "order").await;
}

/// Starts a call while another transaction has made this change and not committed it. Commits the change when
/// the call's write waits for it.
async fn called_meanwhile<T: Send + 'static>(
    server: &Postgres,
    change: &str,
    call: impl Future<Output = T> + Send + 'static,
) -> T {
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    let mut changing = connection.begin().await.unwrap();
    changing.execute(AssertSqlSafe(change)).await.unwrap();
    let calling = tokio::spawn(call);
    until("the write waits for the change", || server.sql(WAITING) == "1");
    changing.commit().await.unwrap();
    calling.await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_changes_between_the_look_and_the_write_is_looked_at_again() {
    let server = Postgres::shared();
    let minute = Duration::from_secs(60);
    let builder = PostgresStore::builder(&server.url()).table("looked_at");
    let store = builder.operation_timeout(minute).lock_timeout(minute).connect().await.unwrap();
    for (number, change) in [
        "state = 1, completed_at = 1, result = 'r'",
        "fence = fence + 1",
        "owner = decode(repeat('ab', 16), 'hex')",
        "state = 4, expires_at = null, owner = decode(repeat('cd', 16), 'hex')",
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("order {number}");
        let (owner, held) = grant(&store, &name).await;
        let change = format!("UPDATE looked_at SET {change} WHERE key = '{name}'::bytea");
        let (store, request) = (store.clone(), Release::new(owner, held.fence, ReleaseCause::Failed));
        let released =
            called_meanwhile(&server, &change, async move { store.release(&key(&name), &request).await });
        assert_eq!(released.await.unwrap(), ReleaseAnswer::Lost, "{change}");
        assert_eq!(server.sql("select count(*) from looked_at where state = 3"), "0", "{change}");
    }
    // A lease has run out, and another transaction renews it while a claim of another owner waits for the
    // row.
    run(&server, "delete from looked_at");
    grant(&store, "lapsed").await;
    run(&server, "update looked_at set lease_until = 1");
    let renewal = "UPDATE looked_at SET lease_until = expires_at";
    let answer = called_meanwhile(&server, renewal, async move { claimed(&store, "lapsed").await }).await;
    assert!(matches!(answer, Ok(ClaimAnswer::Busy { .. })), "{answer:?}");
}

/// The callers of three processes claim and release the same thirty keys, each in another order.
#[tokio::test(flavor = "multi_thread")]
async fn many_callers_of_many_keys_in_any_order_never_wait_for_each_other_in_a_circle() {
    let (server, mut callers) = (Postgres::shared(), JoinSet::new());
    for process in 0..3_usize {
        let store =
            builder(&server.url()).operation_timeout(Duration::from_secs(30)).connect().await.unwrap();
        for caller in 0..40_usize {
            let store = store.clone();
            callers.spawn(async move {
                for round in 0..20 {
                    let number = (process * 7 + caller * 13 + round * 29) % 30;
                    let (name, owner) = (format!("order {number}"), Owner::random());
                    let answer = store.claim(&key(&name), &claim(owner)).await.unwrap();
                    if let ClaimAnswer::Granted(grant) = answer {
                        release(&store, &name, (owner, grant)).await;
                    }
                }
            });
        }
    }
    callers.join_all().await;
    assert_eq!(server.sql("select deadlocks from pg_stat_database where datname = current_database()"), "0");
}
