//! `MySqlStore` on a server that is killed, hangs or takes no writes, on a locked table, and on rows that are
//! not usable.

use std::time::Duration;

use idem_mysql::MySqlStore;
use idem_runtime::{Store, StoreErrorKind};
use idem_test_servers::MariaDb;
use sqlx::{Connection as _, Executor as _, MySqlConnection};

use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn no_grant_is_given_twice_while_the_server_is_killed_again_and_again() {
    let server = MariaDb::start();
    let store = builder(&server.url()).operation_timeout(PATIENCE).connect().await.unwrap();
    no_grant_is_given_twice(store, server, "show global status like 'Com_commit'").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_leaves_the_outcome_unknown_within_bounds() {
    let mut server = MariaDb::start();
    let store = connected(async || builder(&server.url()).operation_timeout(TIME).connect().await).await;
    while claimed(&store, "warm").await.is_err() {}
    a_hanging_server_leaves_the_outcome_unknown(&store, |goes| {
        server.server().signal(if goes { "-CONT" } else { "-STOP" });
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_locked_for_longer_than_an_operation_may_take_changes_nothing() {
    let server = MariaDb::shared();
    let builder = MySqlStore::builder(&server.url()).table("slow");
    let store = builder.operation_timeout(Duration::from_secs(3)).connect().await.unwrap();
    let mut other = MySqlConnection::connect(&server.url()).await.unwrap();
    other.execute("LOCK TABLES slow WRITE").await.unwrap();
    let error = claimed(&store, "order").await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    other.execute("UNLOCK TABLES").await.unwrap();
    assert_eq!(server.sql("select count(*) from slow"), "0");
    grant(&store, "order").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_no_record_is_reported_by_its_digest_and_never_run_over() {
    let server = MariaDb::shared();
    // A new store each time, because a used store may remember something about the record.
    let open = || MySqlStore::builder(&server.url()).table("spoilt").connect();
    record(&open().await.unwrap(), "order 4711", "kept").await;
    run(&server, "create table kept as select * from spoilt");
    for change in [
        "on_crash = 7",
        "tombstone = 5, result = null",
        "tombstone = 0",
        "result = null",
        "completed_at = null",
        "state = 9",
    ] {
        run(&server, "delete from spoilt; insert into spoilt select * from kept");
        run(&server, &format!("update spoilt set {change}"));
        is_no_record(&open().await.unwrap(), change).await;
    }
    let operator = open().await.unwrap();
    assert!(operator.forget(&key("order 4711")).await.unwrap());
    let (_, held) = grant(&operator, "order 4711").await;
    run(&server, "update spoilt set steps = 3");
    let error = operator.get(&key("order 4711")).await.unwrap_err();
    assert_eq!((error.kind(), held.attempt), (StoreErrorKind::CorruptRecord, 1), "{error}");
}

#[tokio::test]
async fn the_error_of_a_row_that_the_server_refuses_shows_nothing_of_it() {
    let server = MariaDb::shared();
    let store = MySqlStore::builder(&server.url()).table("checked").connect().await.unwrap();
    run(&server, "alter table checked add check (octet_length(result) < 100)");
    let bad = completion(grant(&store, "bad").await, vec![b'x'; 200]);
    let error = store.complete(&key("bad"), &bad).await.unwrap_err();
    // The server's message contains the row.
    assert!(error.to_string().contains("4025") && !format!("{error:?}").contains("bad"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_no_writes_replays_results_and_refuses_the_rest() {
    let server = MariaDb::start();
    run(&server, "create user service; grant all on idem.* to service");
    let url = server.url().replace("root@", "service@");
    let table = new_table();
    let open = || MySqlStore::builder(&url).table(&table);
    let first = open().connect().await.unwrap();
    record(&first, "done", "kept").await;
    grant(&first, "in flight").await;
    run(&server, "set global read_only = on");
    let store = open().operation_timeout(Duration::from_secs(3)).connect().await.unwrap();
    for _ in 0..2 {
        assert_eq!(replayed(&store, "done").await, Some(b"kept".to_vec()));
    }
    for name in ["absent", "in flight"] {
        let error = claimed(&store, name).await.unwrap_err();
        assert!(error.is_transient(), "{name}: {error}");
    }
    run(&server, "set global read_only = off");
    grant(&store, "absent").await;
}
