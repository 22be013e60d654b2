//! Connections of the store: read-only servers, passwords that change, roles, the number of exchanges.

use std::time::Duration;

use idem_outbox::Outbox;
use idem_postgres::PostgresStore;
use idem_runtime::protocol::ClaimAnswer;
use idem_runtime::{StoreError, StoreErrorKind};
use idem_test_servers::Postgres;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::support::*;

/// Changes the setting of the database's new sessions by which they take no writes, even if it is on.
fn read_only(server: &Postgres, change: &str) {
    let alter = format!("alter database {} {change}", server.database());
    let _ = server.sql(&format!("set transaction read write; {alter}"));
}

/// Checks that claims of this key get no answer, and that an error says why.
async fn is_refused(store: &PostgresStore, name: &str) {
    // The operation timeout may interrupt the last try, whose outcome is unknown then. On a slow machine that happens more often.
    let mut errors = Vec::new();
    while !errors.iter().any(|error: &StoreError| error.to_string().contains("25006")) {
        assert!(errors.len() < 10, "{errors:?}");
        errors.push(claimed(store, name).await.unwrap_err());
    }
    assert_eq!(errors.last().unwrap().kind(), StoreErrorKind::Unavailable);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_no_writes_replays_results_and_is_left_as_soon_as_another_answers() {
    let server = Postgres::shared();
    let table = new_table();
    let open = || PostgresStore::builder(&server.url()).table(&table);
    let first = open().connect().await.unwrap();
    let held = grant(&first, "done").await;
    complete(&first, "done", held).await;
    grant(&first, "in flight").await;
    read_only(&server, "set default_transaction_read_only = on");
    // A new process.
    let store = open().operation_timeout(Duration::from_secs(3)).connect().await.unwrap();
    let answers = [claimed(&store, "done").await, claimed(&store, "done").await];
    assert!(answers.iter().all(|answer| matches!(answer, Ok(ClaimAnswer::Replay(_)))), "{answers:?}");
    for name in ["in flight", "absent"] {
        is_refused(&store, name).await;
    }
    read_only(&server, "reset default_transaction_read_only");
    // On a session from before, the claim would fail until its time is over.
    grant(&store, "absent").await;
}

/// Makes the server require a password for a role.
fn with_password(server: &mut Postgres) {
    let _ = server.sql("create role service login password 'first'; grant all on schema public to service");
    let hba = server.server().folder().join("data/pg_hba.conf");
    let rest = std::fs::read_to_string(&hba).unwrap();
    std::fs::write(&hba, format!("host all service 127.0.0.1/32 scram-sha-256\n{rest}")).unwrap();
    let _ = server.sql("select pg_reload_conf()");
}

fn change_password(server: &Postgres) {
    let _ = server.sql("alter role service password 'second'");
    let _ =
        server.sql("select count(pg_terminate_backend(pid)) from pg_stat_activity where usename = 'service'");
}

fn options(server: &Postgres, password: &str) -> PgConnectOptions {
    let url = server.url().replace("postgres@", &format!("service:{password}@"));
    url.parse::<PgConnectOptions>().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_the_pool_has_learned_is_the_stores_and_the_outboxs_too() {
    let mut server = Postgres::start();
    with_password(&mut server);
    let pool = PgPoolOptions::new().connect_lazy_with(options(&server, "first"));
    let store = PostgresStore::from_pool(&pool).await.unwrap();
    let outbox = Outbox::from_pool(&pool).await.unwrap();
    grant(&store, "before").await;
    change_password(&server);
    pool.set_connect_options(options(&server, "second"));
    grant(&store, "after").await;
    outbox.counts().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_completes_the_options_of_each_connection() {
    let mut server = Postgres::start();
    with_password(&mut server);
    let password = std::sync::Arc::new(std::sync::Mutex::new("first"));
    let current = password.clone();
    let store = PostgresStore::builder(&server.url().replace("postgres@", "service@"))
        .connect_options_with(move |options| {
            let password = *current.lock().unwrap();
            async move { Ok::<_, std::io::Error>(options.password(password)) }
        })
        .connect()
        .await
        .unwrap();
    grant(&store, "before").await;
    change_password(&server);
    *password.lock().unwrap() = "second";
    grant(&store, "after").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_whose_strings_have_escapes_makes_the_same_tables() {
    let server = Postgres::start();
    let _ = server.sql(
        "create role old login; grant all on schema public to old; alter role old set standard_conforming_strings = off",
    );
    let url = server.url().replace("postgres@", "old@");
    let store = PostgresStore::connect(&url).await.unwrap();
    grant(&store, "order").await;
    Outbox::connect(&url).await.unwrap();
    assert_eq!(server.sql("select key from idem_records_readable"), "order");
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
    let table = new_table();
    let open = async || builder(&url).table(&table).connections(1).connect().await.unwrap();
    let [store, other] = [open().await, open().await];
    // The first use of a statement prepares it.
    for name in ["first", "second"] {
        record(&store, name, "done").await;
        replayed(&store, name).await;
    }
    each_is_one_exchange(&meter, &store, &other).await;
}
