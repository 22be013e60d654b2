//! `PostgresStore` on a server that is killed, stopped or full, and on tables that are not usable.

use std::time::{Duration, Instant};

use idem_postgres::PostgresStore;
use idem_runtime::protocol::{ClaimAnswer, CompleteAnswer};
use idem_runtime::{Store, StoreErrorKind};
use idem_test_servers::{Postgres, until};

use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn no_grant_is_given_twice_while_the_server_is_killed_again_and_again() {
    let mut server = Postgres::start();
    let store = builder(&server.url()).operation_timeout(PATIENCE).connect().await.unwrap();
    let commits = |server: &Postgres| server.sql("select sum(xact_commit) from pg_stat_database");
    no_grant_is_given_twice(store, &mut server, commits, |server: &mut Postgres| {
        server.server().kill();
        server.restart();
    })
    .await;
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
        let done = store.complete(&key(&name), &completion((owner, held), "done")).await;
        assert_eq!(done.unwrap(), CompleteAnswer::Done);
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
            // That which made the tables may have ended.
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

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_and_a_busy_answer_write_nothing_by_the_servers_own_counters() {
    let server = Postgres::start();
    let store =
        PostgresStore::builder(&server.url()).table("counted").connections(1).connect().await.unwrap();
    for number in 0..50 {
        record(&store, &format!("order {number}"), "done").await;
    }
    let (_, busy) = grant(&store, "busy").await;
    assert!(!busy.lease_left.is_zero());
    let replays = || async {
        for round in 0..4 {
            for number in 0..50 {
                assert!(replayed(&store, &format!("order {number}")).await.is_some(), "{round}");
            }
            let answer = claimed(&store, "busy").await.unwrap();
            assert!(matches!(answer, ClaimAnswer::Busy { .. }));
        }
    };
    // Vacuums first, so that replays do not write the clean-up of earlier writes.
    run(&server, "vacuum (freeze) counted");
    replays().await;
    run(&server, "checkpoint");
    let position = || server.sql("select pg_current_wal_insert_lsn()");
    let rows = "select n_tup_ins, n_tup_upd, n_tup_del, n_dead_tup from pg_stat_user_tables where relname = 'counted'";
    let counted = || server.sql(rows);
    // A session reports its counters only now and then, and when it ends.
    until("the writes are counted", || counted() == "51|50|0|50" || counted() == "51|50|0|0");
    let (rows_before, mut written) = (counted(), String::new());
    // The server writes something by itself now and then.
    for _ in 0..3 {
        let before = position();
        replays().await;
        written = server.sql(&format!("select pg_current_wal_insert_lsn() - '{before}'::pg_lsn"));
        if written == "0" {
            break;
        }
    }
    assert_eq!(written, "0");
    drop(store);
    let others = "select count(*) from pg_stat_activity \
                  where backend_type = 'client backend' and pid <> pg_backend_pid()";
    until("the store's sessions are over", || server.sql(others) == "0");
    assert_eq!(counted(), rows_before);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_no_commit_ends_sessions_stay_within_their_bound_and_results_are_replayed() {
    let server = Postgres::start();
    let (time, table) = (Duration::from_secs(1), new_table());
    let open = || PostgresStore::builder(&server.url()).table(&table);
    record(&open().connect().await.unwrap(), "done before", "kept").await;
    let store = connected(async || open().connections(3).operation_timeout(time).connect().await).await;
    while claimed(&store, "done before").await.is_err() {}
    // A standby that is not there: each commit waits for it, and no timeout of the server's ends that.
    let _ = server.sql("alter system set synchronous_standby_names = 'away'");
    let _ = server.sql("select pg_reload_conf()");
    let sessions = || -> usize {
        let counted = "select count(*) from pg_stat_activity where pid <> pg_backend_pid() and \
                       backend_type = 'client backend'";
        server.sql(counted).parse().unwrap()
    };
    let mut number = 0;
    while server.sql("select count(*) from pg_stat_activity where wait_event = 'SyncRep'") == "0" {
        number += 1;
        let _ = claimed(&store, &format!("probe {number}")).await;
    }
    let (begin, mut most) = (Instant::now(), 0);
    while begin.elapsed() < 8 * time {
        let claims = (0..6).map(|number| {
            let (store, name) = (store.clone(), format!("{number} {:?}", begin.elapsed()));
            tokio::spawn(async move { claimed(&store, &name).await })
        });
        for refused in futures_util::future::join_all(claims).await {
            assert!(refused.unwrap().unwrap_err().is_transient());
        }
        let mut answer = claimed(&store, "done before").await;
        if answer.is_err() {
            // On a busy machine the time of one may be over too soon, but not that of two in a row.
            answer = claimed(&store, "done before").await;
        }
        assert!(matches!(answer, Ok(ClaimAnswer::Replay(_))), "{answer:?}");
        most = most.max(sessions());
    }
    // Three for each of the two runtimes, one in each that looks whether the server is still at work, and
    // some that the server has not ended yet.
    assert!(most <= 12, "{most}");
    let _ = server.sql("alter system reset synchronous_standby_names");
    let _ = server.sql("select pg_reload_conf()");
    let begin = Instant::now();
    while let Err(error) = claimed(&store, "afterwards").await {
        assert!(begin.elapsed() < PATIENCE, "{error}");
    }
}
