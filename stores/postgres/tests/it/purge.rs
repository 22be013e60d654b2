//! Purges of `PostgresStore`: they delete expired records, and nothing else.

use std::time::Duration;

use idem_postgres::PostgresStore;
use idem_runtime::Store as _;
use idem_test_servers::{Postgres, until};
use sqlx::Executor as _;

use crate::support::{a_purge_looks_once, record, run};

#[tokio::test(flavor = "multi_thread")]
async fn what_a_transaction_holds_is_left_for_later_and_nobody_waits_for_it() {
    let server = Postgres::shared();
    let store = PostgresStore::builder(&server.url()).table("purged").connect().await.unwrap();
    for name in ["held", "held too", "free"] {
        record(&store, name, "done").await;
    }
    run(&server, "update purged set expires_at = 1, purge_at = 1");
    let pool = sqlx::PgPool::connect(&server.url()).await.unwrap();
    let mut holding = pool.begin().await.unwrap();
    holding.execute("SELECT FROM purged WHERE key IN ('held', 'held too') FOR UPDATE").await.unwrap();
    assert_eq!(store.purge(usize::MAX).await.unwrap(), 1);
    holding.rollback().await.unwrap();
    assert_eq!(store.purge(usize::MAX).await.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_looks_once_at_what_lives_longer_than_its_claim_said() {
    let server = Postgres::shared();
    let store = PostgresStore::builder(&server.url()).table("purged").connect().await.unwrap();
    a_purge_looks_once(&store, |statement| server.sql(statement), "purged", "ttl").await;
}

#[tokio::test]
async fn a_store_purges_by_itself_unless_that_is_off() {
    const OFTEN: Duration = Duration::from_millis(20);
    let server = Postgres::shared();
    let builder = |table: &str| PostgresStore::builder(&server.url()).table(table).purge_every(OFTEN);
    let own = builder("own").connect().await.unwrap();
    let off = builder("off").purge_every(None).connect().await.unwrap();
    let _must_exist = builder("off").must_exist().connect().await.unwrap();
    let expire = |table: &str| run(&server, &format!("update {table} set expires_at = 1, purge_at = 1"));
    let records = |table: &str| server.sql(&format!("select count(*) from {table}"));
    record(&off, "order", "done").await;
    expire("off");
    // Five purges of the store `own` show that enough time has passed for a purge of the store `off`.
    for number in 0..5 {
        record(&own, &format!("order {number}"), "done").await;
        expire("own");
        until("the expired record is deleted", || records("own") == "0");
    }
    assert_eq!(records("off"), "1");
}
