//! `PostgresStore` on a server that is killed or stopped, and on tables and rows that are not usable.

use idem_postgres::PostgresStore;
use idem_runtime::StoreErrorKind;
use idem_test_servers::Postgres;

use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn no_grant_is_given_twice_while_the_server_is_killed_again_and_again() {
    let server = Postgres::start();
    let store = builder(&server.url()).operation_timeout(PATIENCE).connect().await.unwrap();
    no_grant_is_given_twice(store, server, "select sum(xact_commit) from pg_stat_database").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminated_backend_is_not_noticed_by_the_caller() {
    let server = Postgres::start();
    let store = store(&server.url()).await;
    for round in 0..5 {
        let name = format!("order {round}");
        let held = grant(&store, &name).await;
        run(
            &server,
            "select count(pg_terminate_backend(pid)) from pg_stat_activity \
             where pid <> pg_backend_pid() and backend_type = 'client backend'",
        );
        complete(&store, &name, held, "done").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_leaves_the_outcome_unknown_within_bounds() {
    let mut server = Postgres::start();
    let store = connected(async || builder(&server.url()).operation_timeout(TIME).connect().await).await;
    while claimed(&store, "warm").await.is_err() {}
    let backend = server.sql(
        "select pid from pg_stat_activity where pid <> pg_backend_pid() and backend_type = 'client backend'",
    );
    let stop = |signal: &str| {
        for pid in backend.lines() {
            // The backend that created the tables may have ended.
            let _ = std::process::Command::new("kill").args([signal, pid]).status().unwrap();
        }
    };
    a_hanging_server_leaves_the_outcome_unknown(&store, |goes| {
        let signal = if goes { "-CONT" } else { "-STOP" };
        stop(signal);
        server.server().signal(signal);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_work_is_a_configuration_error_that_says_so() {
    let server = Postgres::start();
    let url = server.url();
    let connect = |url: String, table: &'static str| async move {
        PostgresStore::builder(&url).table(table).connect().await
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
    let server = Postgres::shared();
    let store = PostgresStore::builder(&server.url()).table("spoilt").connect().await.unwrap();
    record(&store, "order 4711", "secret").await;
    run(&server, "create table kept as select * from spoilt");
    for change in ["state = 77", "result = null", "owner = 'short'", "attempt = -1", "fingerprint = 'x'"] {
        run(&server, &format!("update spoilt set {change}"));
        is_no_record(&store, change).await;
        run(&server, "delete from spoilt");
        run(&server, "insert into spoilt select * from kept");
    }
    assert!(replayed(&store, "order 4711").await.is_some());
}
