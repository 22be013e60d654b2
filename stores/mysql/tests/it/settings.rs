//! Settings of the server and of sessions: some must make no difference, others limit the store.

use std::sync::Arc;

use idem_mysql::MySqlStore;
use idem_runtime::inspection::Standing;
use idem_runtime::protocol::ClaimAnswer;
use idem_runtime::{Store, StoreErrorKind};
use idem_test_servers::{MariaDb, until};
use idem_testing::conformance;

use crate::support::*;

/// Checks keys and results that a collation, an SQL mode or a character set would confuse.
fn keeps_its_records(server: &Arc<MariaDb>) {
    for name in [
        "texts_that_mean_something_elsewhere_are_keys_of_their_own",
        "a_scope_and_a_key_do_not_flow_into_each_other",
        "bytes_that_mean_something_elsewhere_come_back",
    ] {
        let (server, url) = (server.clone(), server.url());
        let check = conformance::all().iter().find(|check| check.name() == name).unwrap();
        check.run(move || async move { subject(url.clone(), url, profile()).await.keep(server) }).unwrap();
    }
}

#[test]
fn no_sql_mode_and_no_collation_confuses_two_keys() {
    let server =
        Arc::new(MariaDb::fast(&["--character-set-server=latin1", "--collation-server=latin1_swedish_ci"]));
    for mode in [
        "",
        "ANSI,NO_BACKSLASH_ESCAPES",
        "ORACLE,EMPTY_STRING_IS_NULL,PIPES_AS_CONCAT",
        "TRADITIONAL,NO_UNSIGNED_SUBTRACTION,HIGH_NOT_PRECEDENCE,IGNORE_SPACE,PAD_CHAR_TO_FULL_LENGTH",
        "MSSQL",
    ] {
        // This applies to sessions that begin from now on.
        run(&server, &format!("set global sql_mode = '{mode}'"));
        keeps_its_records(&server);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn defaults_of_sessions_that_would_change_what_statements_do_do_not() {
    let server = Arc::new(MariaDb::fast(&[
        "--autocommit=0",
        "--completion-type=2",
        "--transaction-isolation=SERIALIZABLE",
        "--innodb-default-row-format=compact",
        "--default-storage-engine=MyISAM",
    ]));
    run(&server, "set global sql_select_limit = 1; set global sql_safe_updates = 1");
    keeps_its_records(&server);
    // A session that keeps a snapshot would not see what another session commits.
    let table = new_table();
    let builder = MySqlStore::builder(&server.url()).table(&table).connections(1);
    let [one, another] = [builder.clone().connect().await.unwrap(), builder.clone().connect().await.unwrap()];
    for number in 0..5 {
        let name = format!("order {number}");
        assert_eq!(another.get(&key(&name)).await.unwrap(), None);
        record(&one, &name, "seen").await;
        assert_eq!(replayed(&another, &name).await, Some(b"seen".to_vec()));
    }
    assert_eq!(one.list(&Default::default()).await.unwrap().records.len(), 5);
    let engines =
        "select count(*) from information_schema.tables where table_schema = 'idem' and engine <> 'InnoDB'";
    assert_eq!(server.sql(engines), "0");
    builder.must_exist().connect().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_closes_connections_at_each_commit_closes_none_of_the_store() {
    let server = MariaDb::fast(&["--completion-type=2"]);
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
    let server = MariaDb::start();
    let builder = builder(&server.url());
    let held = grant(&builder.clone().connect().await.unwrap(), "order").await;
    for zone in ["+13:00", "-11:00"] {
        run(&server, &format!("set global time_zone = '{zone}'"));
        let store = builder.clone().connect().await.unwrap();
        let answer = claimed(&store, "order").await.unwrap();
        assert!(matches!(answer, ClaimAnswer::Busy { retry_after } if retry_after <= HOUR), "{answer:?}");
        let now = store.inspect().await.unwrap().now.unwrap();
        let system = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        assert!(system.as_micros().abs_diff(now.as_micros().into()) < 60_000_000, "{now:?}");
    }
    complete(&builder.connect().await.unwrap(), "order", held, "done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_may_be_as_large_as_half_of_the_servers_messages_and_no_larger() {
    let server = MariaDb::fast(&["--max-allowed-packet=4M"]);
    let store = store(&server.url()).await;
    let most = store.max_result_bytes().unwrap();
    assert_eq!(most, (2 << 20) - (32 << 10));
    let held = grant(&store, "large").await;
    let too_large = store.complete(&key("large"), &completion(held, vec![7; most + 1])).await.unwrap_err();
    assert_eq!(too_large.kind(), StoreErrorKind::TooLarge);
    store.complete(&key("large"), &completion(held, vec![7; most])).await.unwrap();
    assert_eq!(replayed(&store, "large").await, Some(vec![7; most]));
    // A server may accept only messages that are too small for any record.
    run(&server, "set global max_allowed_packet = 65536");
    let error = MySqlStore::connect(&server.url()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error}");
    assert!(error.to_string().contains("max_allowed_packet"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binary_log_of_statements_is_a_configuration_error_that_says_what_to_set() {
    let server = MariaDb::fast(&["--log-bin", "--binlog-format=STATEMENT"]);
    let store = store(&server.url()).await;
    let error = claimed(&store, "order").await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error}");
    assert!(error.to_string().contains("binlog_format"), "{error}");
    let found = store.inspect().await.unwrap();
    let finding = found.findings.iter().find(|finding| finding.subject == "binlog_format").unwrap();
    assert_eq!(finding.standing, Standing::Weak);
}
