//! Purges of `MySqlStore`: they delete expired records and their steps, and nothing else.

use idem_mysql::MySqlStore;
use idem_runtime::Store;
use idem_runtime::protocol::{RecordStep, RecordedStep, StoredResult};
use idem_test_servers::{MariaDb, until};
use sqlx::{Connection as _, Executor as _, MySqlConnection, MySqlPool};

use crate::support::{a_purge_looks_once, both_ways, grant, key, new_table, record, run};

#[tokio::test(flavor = "multi_thread")]
async fn what_a_transaction_holds_is_left_for_later_and_nobody_waits_for_it() {
    let server = MariaDb::shared();
    let store = MySqlStore::builder(&server.url()).table("purged").connect().await.unwrap();
    for name in ["held", "held too", "free"] {
        record(&store, name, "done").await;
    }
    run(&server, "update purged set expires_at = 1, purge_at = 1");
    let pool = MySqlPool::connect(&server.url()).await.unwrap();
    let mut holding = pool.begin().await.unwrap();
    let held = "SELECT * FROM purged WHERE scope = 'orders' AND `key` IN ('held', 'held too') FOR UPDATE";
    holding.execute(held).await.unwrap();
    assert_eq!(store.purge(usize::MAX).await.unwrap(), 1);
    holding.rollback().await.unwrap();
    assert_eq!(store.purge(usize::MAX).await.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_looks_once_at_what_lives_longer_than_its_claim_said() {
    let server = MariaDb::shared();
    for url in both_ways(&server) {
        let table = new_table();
        let store = MySqlStore::builder(&url).table(&table).connect().await.unwrap();
        a_purge_looks_once(&store, |statement| server.sql(statement), &table, "~0").await;
    }
}

/// Claims the key, and records three steps of `bytes` bytes each.
async fn stepped(store: &MySqlStore, name: &str, bytes: usize) -> Vec<RecordedStep> {
    let (owner, held) = grant(store, name).await;
    let result = || StoredResult::Value(vec![7; bytes].into());
    let steps = [0, 1, 2].map(|position| RecordedStep::new(format!("step {position}"), None, result()));
    for (position, step) in (0..).zip(&steps) {
        let request = RecordStep::new(owner, held.fence, position, step.clone());
        store.record_step(&key(name), &request).await.unwrap();
    }
    steps.into()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_steps_of_a_record_go_with_it_and_those_of_one_deleted_by_hand_are_replaced() {
    let server = MariaDb::shared();
    let store = MySqlStore::builder(&server.url()).table("stepped").connect().await.unwrap();
    for name in ["expired", "forgotten", "kept"] {
        stepped(&store, name, 100_000).await;
    }
    let steps = "select count(*) from stepped_steps";
    assert_eq!(server.sql(steps), "9");
    run(&server, "update stepped set expires_at = 1, purge_at = 1 where `key` = 'expired'");
    assert_eq!(store.purge(10).await.unwrap(), 1);
    assert_eq!(server.sql(steps), "6");
    assert!(store.forget(&key("forgotten")).await.unwrap());
    assert_eq!(server.sql("select distinct `key` from stepped_steps"), "0x6B657074");
    assert_eq!(store.get(&key("kept")).await.unwrap().unwrap().steps.len(), 3);
    for bytes in [10, 100_000, 20] {
        run(&server, "delete from stepped");
        let steps = stepped(&store, "kept", bytes).await;
        assert_eq!(store.get(&key("kept")).await.unwrap().unwrap().steps, steps);
    }
}

/// At the server's default level, `REPEATABLE READ`, a batch would also lock gaps, where other processes
/// insert keys.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_waits_has_locked_rows_and_no_gaps() {
    let server = MariaDb::start();
    let store = MySqlStore::builder(&server.url()).table("waiting").connect().await.unwrap();
    stepped(&store, "a", 10).await;
    let mut other = MySqlConnection::connect(&server.url()).await.unwrap();
    other.execute("START TRANSACTION; SELECT * FROM waiting_steps FOR UPDATE").await.unwrap();
    let forgotten = tokio::spawn(async move { store.forget(&key("a")).await });
    let waits = "select trx_isolation_level from information_schema.innodb_trx where trx_state = 'LOCK WAIT'";
    until("the batch waits", || !server.sql(waits).is_empty());
    assert_eq!(server.sql(waits), "READ COMMITTED");
    other.close().await.unwrap();
    assert!(forgotten.await.unwrap().unwrap());
}
