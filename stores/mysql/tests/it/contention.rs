//! Rows and gaps that other transactions have locked, and keys with many callers at once.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use idem_core::transaction::RecordsIn as _;
use idem_mysql::MySqlStore;
use idem_runtime::Store;
use idem_runtime::protocol::{ClaimAnswer, CompleteAnswer, Owner};
use idem_test_servers::MariaDb;
use sqlx::{Executor as _, MySqlPool};

use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn what_a_transaction_has_locked_is_read_and_its_change_is_refused_and_delays_no_other() {
    let server = MariaDb::shared();
    for url in both_ways(&server) {
        let (table, time) = (new_table(), Duration::from_secs(4));
        let builder = MySqlStore::builder(&url).table(&table);
        let store = builder.clone().connections(1).operation_timeout(time).connect().await.unwrap();
        let (held, free) = (grant(&store, "locked").await, grant(&store, "free").await);
        record(&store, "done", "kept").await;
        let pool = MySqlPool::connect(&server.url()).await.unwrap();
        let mut other = pool.begin().await.unwrap();
        for name in ["done", "locked"] {
            let row = format!("SELECT * FROM {table} WHERE scope = 'orders' AND `key` = '{name}' FOR UPDATE");
            other.execute(sqlx::AssertSqlSafe(row)).await.unwrap();
        }
        // Like the store of a new process, this store remembers nothing.
        let fresh = builder.connect().await.unwrap();
        assert_eq!(replayed(&fresh, "done").await, Some(b"kept".to_vec()));
        let answer = claimed(&fresh, "locked").await.unwrap();
        assert!(matches!(answer, ClaimAnswer::Busy { .. }), "{answer:?}");
        let names = [key("locked"), key("free")];
        let results = [completion(held, "1"), completion(free, "2")];
        let begin = Instant::now();
        let freed = async { (store.complete(&names[1], &results[1]).await, begin.elapsed()) };
        // Both completions may share a batch.
        let (locked, (free, took)) = tokio::join!(store.complete(&names[0], &results[0]), freed);
        let error = locked.unwrap_err();
        // The timeout may have interrupted the last try, so the kind of the error is not fixed.
        assert!(error.is_transient(), "{error}");
        assert_eq!(free.unwrap(), CompleteAnswer::Done);
        assert!(took < time, "it waited for the other: {took:?}");
        other.rollback().await.unwrap();
        assert_eq!(store.complete(&names[0], &results[0]).await.unwrap(), CompleteAnswer::Done);
    }
}

/// At `REPEATABLE READ`, the lock of a transaction may also cover the gap before its key, where others insert
/// new keys.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_key_in_a_gap_that_a_transaction_has_locked_holds_up_no_other() {
    let server = MariaDb::start();
    for url in both_ways(&server) {
        let table = new_table();
        let store = MySqlStore::builder(&url).table(&table).connect().await.unwrap();
        for name in ["x1", "x9"] {
            grant(&store, name).await;
        }
        let pool = MySqlPool::connect(&server.url()).await.unwrap();
        let mut other = pool.begin().await.unwrap();
        // After this, the store treats a locked key as taken by a transaction.
        store.take(&mut other, &key("taken"), &claim(Owner::random())).await.unwrap();
        let lock = format!("SELECT * FROM {table} WHERE scope = 'orders' AND `key` = 'x5' FOR UPDATE");
        other.execute(sqlx::AssertSqlSafe(lock)).await.unwrap();
        let names: Vec<_> = (0..32).map(|number| format!("{number}")).chain(["x4".to_owned()]).collect();
        let requests: Vec<_> = names.iter().map(|name| (key(name), claim(Owner::random()))).collect();
        let answers = join_all(requests.iter().map(|(key, claim)| store.claim(key, claim))).await;
        for (name, answer) in names.iter().zip(&answers) {
            let is_busy = matches!(answer.as_ref().unwrap(), ClaimAnswer::Busy { .. });
            assert_eq!(is_busy, name == "x4", "{name}: {answer:?}");
        }
        other.rollback().await.unwrap();
        grant(&store, "x4").await;
    }
}
