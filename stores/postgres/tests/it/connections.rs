//! Connections of the store: read-only servers, passwords that change, the number of exchanges.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use idem_outbox::Outbox;
use idem_postgres::PostgresStore;
use idem_runtime::{StoreError, StoreErrorKind};
use idem_test_servers::Postgres;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::support::*;

/// Changes whether new sessions of the database are read-only. Works even if they already are read-only.
fn read_only(server: &Postgres, change: &str) {
    let alter = format!("alter database {} {change}", server.database());
    let _ = server.sql(&format!("set transaction read write; {alter}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_no_writes_replays_results_and_is_left_as_soon_as_another_answers() {
    let server = Postgres::shared();
    let table = new_table();
    let open = || PostgresStore::builder(&server.url()).table(&table);
    let first = open().connect().await.unwrap();
    record(&first, "done", "kept").await;
    grant(&first, "in flight").await;
    read_only(&server, "set default_transaction_read_only = on");
    // Like the store of a new process, this store remembers nothing.
    let store = open().operation_timeout(Duration::from_secs(3)).connect().await.unwrap();
    for _ in 0..2 {
        assert_eq!(replayed(&store, "done").await, Some(b"kept".to_vec()));
    }
    for name in ["in flight", "absent"] {
        // The operation timeout may end during a try, whose outcome is then unknown. So the test claims again
        // until it gets the server's own error.
        let mut errors = Vec::new();
        while !errors.iter().any(|error: &StoreError| error.to_string().contains("25006")) {
            assert!(errors.len() < 10, "{errors:?}");
            errors.push(claimed(&store, name).await.unwrap_err());
        }
        assert_eq!(errors.last().unwrap().kind(), StoreErrorKind::Unavailable);
    }
    read_only(&server, "reset default_transaction_read_only");
    // An older session is read-only. On such a session, the claim would fail until the operation timeout.
    grant(&store, "absent").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_changes_is_in_the_next_connections_whether_a_pool_or_a_function_has_it() {
    let mut server = Postgres::start();
    let _ = server.sql("create role service login password 'first'; grant all on schema public to service");
    let hba = server.server().folder().join("data/pg_hba.conf");
    let rest = std::fs::read_to_string(&hba).unwrap();
    std::fs::write(&hba, format!("host all service 127.0.0.1/32 scram-sha-256\n{rest}")).unwrap();
    let _ = server.sql("select pg_reload_conf()");
    let url = server.url().replace("postgres@", "service@");
    let options = |password: &str| url.parse::<PgConnectOptions>().unwrap().password(password);
    let pool = PgPoolOptions::new().connect_lazy_with(options("first"));
    let password = Arc::new(Mutex::new("first"));
    let current = password.clone();
    let completed = PostgresStore::builder(&url).connect_options_with(move |options| {
        let password = *current.lock().unwrap();
        async move { Ok::<_, std::io::Error>(options.password(password)) }
    });
    let stores = [PostgresStore::from_pool(&pool).await.unwrap(), completed.connect().await.unwrap()];
    let outbox = Outbox::from_pool(&pool).await.unwrap();
    grant(&stores[0], "before").await;
    grant(&stores[1], "before too").await;
    let _ = server.sql("alter role service password 'second'");
    let _ =
        server.sql("select count(pg_terminate_backend(pid)) from pg_stat_activity where usename = 'service'");
    pool.set_connect_options(options("second"));
    *password.lock().unwrap() = "second";
    grant(&stores[0], "after").await;
    grant(&stores[1], "after too").await;
    outbox.counts().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_was_dropped_is_an_error_that_says_what_to_do() {
    let server = Postgres::shared();
    let store = PostgresStore::builder(&server.url()).table("gone").connect().await.unwrap();
    let _ = server.sql("drop table gone cascade");
    let error = claimed(&store, "order").await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error}");
    let text = error.to_string();
    assert!(text.contains("42P01") && text.contains("restore it") && !text.contains("password"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_one_caller_a_claim_a_completion_and_a_replay_are_one_exchange_each() {
    let server = Postgres::shared();
    let (meter, url) = metered(server.port(), &server.url()).await;
    let store = builder(&url).connections(1).connect().await.unwrap();
    // The first use of a statement prepares it.
    for name in ["first", "second"] {
        record(&store, name, "done").await;
        replayed(&store, name).await;
    }
    let names: Vec<_> = (0..20).map(|number| format!("order {number}")).collect();
    let before = meter.now();
    for name in &names {
        record(&store, name, "done").await;
    }
    let fresh = meter.since(before, 20).round_trips;
    let before = meter.now();
    for name in &names {
        assert!(replayed(&store, name).await.is_some(), "{name}");
    }
    assert_eq!((fresh, meter.since(before, 20).round_trips), (2.0, 1.0));
}
