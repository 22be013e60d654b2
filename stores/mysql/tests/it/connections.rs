//! Connections of the store: what stays in a session, and what is prepared.

use idem_runtime::Store;
use idem_test_servers::MariaDb;

use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_set_in_a_session_and_few_statements_stay_prepared() {
    let server = MariaDb::fast(&["--general-log=1", "--general-log-file=statements"]);
    let store = builder(&server.url()).connect().await.unwrap();
    record(&store, "small", "x").await;
    record(&store, "large", vec![7; 200_000]).await;
    assert_eq!(replayed(&store, "large").await.map(|bytes| bytes.len()), Some(200_000));
    store.purge(10).await.unwrap();
    store.list(&Default::default()).await.unwrap();
    store.forget(&key("small")).await.unwrap();
    let _ = server.sql("flush general logs");
    let log = std::fs::read(server.sql("select concat(@@datadir, '/statements')")).unwrap();
    let log = String::from_utf8_lossy(&log);
    // A `SET STATEMENT` applies to one statement only.
    let known = ["UPDATE ", "SET TRANSACTION", "SET STATEMENT "];
    let sets: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("SET ") && !known.iter().any(|known| line.contains(known)))
        .collect();
    assert!(sets.is_empty(), "{sets:?}");
    assert!(log.contains("SET TRANSACTION ISOLATION LEVEL READ COMMITTED"), "{log}");
    for word in ["GET_LOCK", "PREPARE s", "SET SESSION", "SET NAMES", "SET @", "TEMPORARY"] {
        assert!(!log.contains(word), "{word}");
    }
    let prepared: usize = server.sql(PREPARED).parse().unwrap();
    let sessions = 4;
    assert!(0 < prepared && prepared <= 3 * sessions, "{prepared}");
}

/// How many statements the server keeps prepared.
const PREPARED: &str =
    "select variable_value from information_schema.global_status where variable_name = 'PREPARED_STMT_COUNT'";

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_prepares_nothing_is_served_without() {
    let server = MariaDb::fast(&["--max-prepared-stmt-count=0"]);
    let store = store(&server.url()).await;
    for number in 0..5 {
        let name = format!("order {number}");
        record(&store, &name, "done").await;
        assert_eq!(replayed(&store, &name).await, Some(b"done".to_vec()));
    }
    assert_eq!(server.sql(PREPARED), "0");
}
