//! Connections of the store: passwords that change, sessions that others use too, exchanges, age.

use std::time::{Duration, Instant};

use idem_mysql::MySqlStore;
use idem_runtime::{Store, StoreErrorKind};
use idem_test_servers::MariaDb;
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};

use crate::support::{builder, completion, grant, key, record, replayed, run, store};

/// How long the tests wait for what must come to pass.
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_set_in_a_session_and_nothing_stays_prepared() {
    let server = MariaDb::with(&[
        "--general-log=1",
        "--general-log-file=statements",
        "--innodb-flush-log-at-trx-commit=2",
    ]);
    let store = store(&server.url()).await;
    record(&store, "small", "x").await;
    record(&store, "large", vec![7; 200_000]).await;
    assert_eq!(replayed(&store, "large").await.map(|bytes| bytes.len()), Some(200_000));
    store.purge(10).await.unwrap();
    store.list(&Default::default()).await.unwrap();
    store.forget(&key("small")).await.unwrap();
    let _ = server.sql("flush general logs");
    let log = log_of(&server);
    let sets: Vec<&str> = log
        .lines()
        .filter(|line| {
            line.contains("SET ") && !line.contains("UPDATE ") && !line.contains("SET TRANSACTION")
        })
        .collect();
    assert!(sets.is_empty(), "{sets:?}");
    assert!(log.contains("SET TRANSACTION ISOLATION LEVEL READ COMMITTED"), "{log}");
    for word in ["GET_LOCK", "PREPARE s", "SET SESSION", "SET NAMES", "SET @", "TEMPORARY"] {
        assert!(!log.contains(word), "{word}");
    }
    assert_eq!(
        server.sql("select variable_value from information_schema.global_status where variable_name = 'PREPARED_STMT_COUNT'"),
        "0"
    );
}

fn log_of(server: &MariaDb) -> String {
    let folder = server.sql("select @@datadir");
    std::fs::read(format!("{folder}/statements"))
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_call_is_two_exchanges_an_operation_and_a_replay_is_one() {
    let server = MariaDb::start();
    let store = builder(&server.url()).connections(1).connect().await.unwrap();
    // A packet is a `Questions` of its own, whatever statements are in it; their number is what is counted here.
    let exchanges = || {
        let count = server.sql("select variable_value from information_schema.global_status where variable_name = 'BYTES_RECEIVED'");
        count.parse::<u64>().unwrap()
    };
    grant(&store, "warm").await;
    let before = exchanges();
    for number in 0..20 {
        record(&store, &format!("order {number}"), "done").await;
    }
    let fresh = (exchanges() - before) / 20;
    let before = exchanges();
    for number in 0..20 {
        assert!(replayed(&store, &format!("order {number}")).await.is_some());
    }
    let replay = (exchanges() - before) / 20;
    println!("bytes sent: {fresh} a fresh call, {replay} a replay");
    assert!(fresh < 5_000 && replay < 1_500, "{fresh} {replay}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_too_old_is_replaced() {
    let server = MariaDb::start();
    let age = Duration::from_millis(100);
    let store = builder(&server.url()).connections(1).max_connection_age(age).connect().await.unwrap();
    let session = || {
        server.sql("select group_concat(id) from information_schema.processlist where id <> connection_id() and user = 'root'")
    };
    grant(&store, "first").await;
    let first = session();
    let begin = Instant::now();
    let mut number = 0;
    while session() == first || session() == "NULL" {
        assert!(begin.elapsed() < PATIENCE, "the session {first} stays");
        number += 1;
        grant(&store, &format!("order {number}")).await;
    }
}

fn change_password(server: &MariaDb) {
    run(server, "alter user service identified by 'second'; kill user service");
}

fn options(server: &MariaDb, password: &str) -> MySqlConnectOptions {
    server.url().replace("root@", &format!("service:{password}@")).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_the_pool_has_learned_is_the_stores_too() {
    let server = MariaDb::start();
    run(&server, "create user service identified by 'first'; grant all on idem.* to service");
    let pool = MySqlPoolOptions::new().connect_lazy_with(options(&server, "first"));
    let store = MySqlStore::from_pool(&pool).await.unwrap();
    grant(&store, "before").await;
    change_password(&server);
    pool.set_connect_options(options(&server, "second"));
    grant(&store, "after").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_completes_the_options_of_each_connection() {
    let server = MariaDb::start();
    run(&server, "create user service identified by 'first'; grant all on idem.* to service");
    let password = std::sync::Arc::new(std::sync::Mutex::new("first"));
    let current = password.clone();
    let store = MySqlStore::builder(&server.url().replace("root@", "service@"))
        .connect_options_with(move |options| {
            let password = *current.lock().unwrap();
            async move { Ok::<_, std::io::Error>(options.password(password)) }
        })
        .connect()
        .await
        .unwrap();
    let held = grant(&store, "before").await;
    change_password(&server);
    *password.lock().unwrap() = "second";
    grant(&store, "after").await;
    store.complete(&key("before"), &completion(held, "done")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_servers_certificate_is_checked_and_what_does_not_fit_is_a_configuration_error() {
    let server = MariaDb::with_tls();
    let (certificate, other) = (server.certificate(), MariaDb::with_tls());
    let url = |host: &str, ca: &std::path::Path, mode: &str| {
        let port = server.url().rsplit_once(':').unwrap().1.to_owned();
        format!("mysql://root@{host}:{port}?ssl-mode={mode}&ssl-ca={}", ca.display())
    };
    for (host, mode) in
        [("localhost", "VERIFY_IDENTITY"), ("127.0.0.1", "VERIFY_CA"), ("127.0.0.1", "REQUIRED")]
    {
        let store = MySqlStore::connect(&url(host, &certificate, mode)).await.unwrap();
        grant(&store, mode).await;
        let sessions = server.sql("select variable_value > 0 from information_schema.global_status where variable_name = 'SSL_FINISHED_ACCEPTS'");
        assert_eq!(sessions, "1", "{mode}");
    }
    for (what, wrong) in [
        ("host", url("127.0.0.1", &certificate, "VERIFY_IDENTITY")),
        ("certificate", url("localhost", &other.certificate(), "VERIFY_IDENTITY")),
        ("certificate", url("localhost", &other.certificate(), "VERIFY_CA")),
    ] {
        let time = Duration::from_secs(2);
        let error = MySqlStore::builder(&wrong).operation_timeout(time).connect().await.unwrap_err();
        assert!(error.to_string().contains("certificate"), "{what}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tls_is_refused_where_tls_is_required() {
    let server = MariaDb::with(&["--skip-ssl", "--innodb-flush-log-at-trx-commit=2"]);
    let error = MySqlStore::connect(&format!("{}?ssl-mode=REQUIRED", server.url())).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error}");
}
