//! Settings of the server and of sessions: those that must not matter, and those that limit the store.

use idem_mysql::MySqlStore;
use idem_runtime::inspection::Standing;
use idem_runtime::protocol::{ClaimAnswer, CompleteAnswer, Owner, StoredResult};
use idem_runtime::{Key, RecordKey, Scope, Store, StoreErrorKind};
use idem_test_servers::{MariaDb, until};

use crate::support::{builder, claim, completion, grant, key, new_table, record, replayed, run, store};

/// Claims, completes and reads keys that a collation, an SQL mode or a character set would confuse.
async fn keeps_its_records(server: &MariaDb) {
    let store = store(&server.url()).await;
    let keys = [
        "a",
        "A",
        "a ",
        "ä",
        "a\u{308}",
        "\u{1f980}",
        "a\0",
        "a\0b",
        "'",
        "\\",
        "\"",
        "`",
        "%",
        "_",
        "--",
        "ß",
        "ss",
    ];
    let scopes = ["s", "S", "s ", "\\'"];
    for scope in scopes {
        for name in keys {
            let key = RecordKey::new(Scope::new(scope).unwrap(), Key::new(name).unwrap());
            let owner = Owner::random();
            let answer = store.claim(&key, &claim(owner)).await.unwrap();
            let ClaimAnswer::Granted(grant) = answer else { panic!("{scope:?} {name:?}: {answer:?}") };
            let result = [scope.as_bytes(), b"\0\\'\xff", name.as_bytes()].concat();
            store.complete(&key, &completion((owner, grant), result)).await.unwrap();
        }
    }
    for scope in scopes {
        for name in keys {
            let key = RecordKey::new(Scope::new(scope).unwrap(), Key::new(name).unwrap());
            let record = store.get(&key).await.unwrap().unwrap();
            let result = [scope.as_bytes(), b"\0\\'\xff", name.as_bytes()].concat();
            assert_eq!(record.result, Some(StoredResult::Value(result.into())), "{scope:?} {name:?}");
        }
    }
    record_empty(&store).await;
}

async fn record_empty(store: &MySqlStore) {
    record(store, "empty", "").await;
    let fresh = store.get(&key("empty")).await.unwrap().unwrap();
    assert_eq!(fresh.result, Some(StoredResult::Value(bytes::Bytes::new())));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_sql_mode_and_no_collation_confuses_two_keys() {
    let server = MariaDb::with(&[
        "--character-set-server=latin1",
        "--collation-server=latin1_swedish_ci",
        "--innodb-flush-log-at-trx-commit=2",
    ]);
    for mode in [
        "",
        "ANSI,NO_BACKSLASH_ESCAPES",
        "ORACLE,EMPTY_STRING_IS_NULL,PIPES_AS_CONCAT",
        "TRADITIONAL,NO_UNSIGNED_SUBTRACTION,HIGH_NOT_PRECEDENCE,IGNORE_SPACE,PAD_CHAR_TO_FULL_LENGTH",
        "MSSQL",
    ] {
        // For the sessions that begin from now on.
        run(&server, &format!("set global sql_mode = '{mode}'"));
        keeps_its_records(&server).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn defaults_of_sessions_that_would_change_what_statements_do_do_not() {
    let server = MariaDb::with(&[
        "--autocommit=0",
        "--completion-type=2",
        "--transaction-isolation=SERIALIZABLE",
        "--innodb-default-row-format=compact",
        "--default-storage-engine=MyISAM",
        "--innodb-flush-log-at-trx-commit=2",
    ]);
    run(&server, "set global sql_select_limit = 1; set global sql_safe_updates = 1");
    let first = store(&server.url()).await;
    keeps_its_records(&server).await;
    // A session that keeps a snapshot would not see what another commits.
    let table = new_table();
    let open = || MySqlStore::builder(&server.url()).table(&table).connections(1).connect();
    let (one, another) = (open().await.unwrap(), open().await.unwrap());
    for number in 0..5 {
        let name = format!("order {number}");
        assert_eq!(another.get(&key(&name)).await.unwrap(), None);
        record(&one, &name, "seen").await;
        assert_eq!(replayed(&another, &name).await, Some(b"seen".to_vec()));
    }
    let page = one.list(&Default::default()).await.unwrap();
    assert_eq!(page.records.len(), 5);
    // Operations that wait for the single connection share a batch.
    let mut held = Vec::new();
    for number in 0..5 {
        let name = format!("travels {number}");
        held.push((key(&name), completion(grant(&one, &name).await, "done")));
    }
    let done = futures_util::future::join_all(held.iter().map(|(key, done)| one.complete(key, done))).await;
    assert!(done.iter().all(|done| matches!(done, Ok(CompleteAnswer::Done))), "{done:?}");
    let engines =
        "select count(*) from information_schema.tables where table_schema = 'idem' and engine <> 'InnoDB'";
    assert_eq!(server.sql(engines), "0");
    let version = format!("select value from {table}_meta where name = 'schema_version'");
    assert_eq!(server.sql(&version), "1");
    MySqlStore::builder(&server.url()).table(&table).must_exist().connect().await.unwrap();
    drop(first);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_closes_connections_at_each_commit_closes_none_of_the_store() {
    let server = MariaDb::with(&["--completion-type=2", "--innodb-flush-log-at-trx-commit=2"]);
    run(&server, "create user service; grant all on idem.* to service");
    let url = server.url().replace("root@", "service@");
    let store = builder(&url).connections(1).connect().await.unwrap();
    let sessions =
        || server.sql("select group_concat(id) from information_schema.processlist where user = 'service'");
    record(&store, "first", "done").await;
    until("the session that made the tables is closed", || !sessions().contains(','));
    let first = sessions();
    assert_ne!(first, "NULL");
    for number in 0..5 {
        record(&store, &format!("order {number}"), "done").await;
        assert!(replayed(&store, &format!("order {number}")).await.is_some());
        assert_eq!(sessions(), first, "{number}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn time_zones_of_server_and_session_do_not_matter() {
    let table = new_table();
    let server = MariaDb::start();
    let url = server.url();
    let utc = MySqlStore::builder(&url).table(&table).connect().await.unwrap();
    let now = utc.inspect().await.unwrap().now.unwrap();
    let system = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!(system.as_micros().abs_diff(now.as_micros().into()) < 60_000_000, "{now:?}");
    let held = grant(&utc, "order").await;
    run(&server, "set global time_zone = '+13:00'");
    let east = MySqlStore::builder(&url).table(&table).connect().await.unwrap();
    let answer = east.claim(&key("order"), &claim(Owner::random())).await.unwrap();
    let ClaimAnswer::Busy { retry_after } = answer else { panic!("{answer:?}") };
    assert!(retry_after <= crate::support::HOUR, "{retry_after:?}");
    run(&server, "set global time_zone = '-11:00'");
    let west = MySqlStore::builder(&url).table(&table).connect().await.unwrap();
    let answer = west.claim(&key("order"), &claim(Owner::random())).await.unwrap();
    assert!(matches!(answer, ClaimAnswer::Busy { .. }), "{answer:?}");
    west.complete(&key("order"), &completion(held, "done")).await.unwrap();
    let now = west.inspect().await.unwrap().now.unwrap();
    let system = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!(system.as_micros().abs_diff(now.as_micros().into()) < 60_000_000, "{now:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_may_be_as_large_as_half_of_the_servers_messages_and_no_larger() {
    let server = MariaDb::with(&["--max-allowed-packet=4M", "--innodb-flush-log-at-trx-commit=2"]);
    let store = store(&server.url()).await;
    let most = store.max_result_bytes().unwrap();
    assert_eq!(most, (2 << 20) - (32 << 10));
    let held = grant(&store, "large").await;
    let too_large = store.complete(&key("large"), &completion(held, vec![7; most + 1])).await.unwrap_err();
    assert_eq!(too_large.kind(), StoreErrorKind::TooLarge);
    store.complete(&key("large"), &completion(held, vec![7; most])).await.unwrap();
    assert_eq!(replayed(&store, "large").await, Some(vec![7; most]));
    let fresh = builder(&server.url()).max_result_bytes(1 << 20).connect().await.unwrap();
    assert_eq!(fresh.max_result_bytes(), Some(1 << 20));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_messages_are_too_small_is_refused() {
    let server = MariaDb::with(&["--max-allowed-packet=64K", "--innodb-flush-log-at-trx-commit=2"]);
    let error = MySqlStore::connect(&server.url()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error}");
    assert!(error.to_string().contains("max_allowed_packet"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binary_log_of_statements_is_a_configuration_error_that_says_what_to_set() {
    let server =
        MariaDb::with(&["--log-bin", "--binlog-format=STATEMENT", "--innodb-flush-log-at-trx-commit=2"]);
    let store = store(&server.url()).await;
    let error = store.claim(&key("order"), &claim(Owner::random())).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error}");
    assert!(error.to_string().contains("binlog_format"), "{error}");
    let found = store.inspect().await.unwrap();
    let finding = found.findings.iter().find(|finding| finding.subject == "binlog_format").unwrap();
    assert_eq!(finding.standing, Standing::Weak);
}
