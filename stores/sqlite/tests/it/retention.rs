//! Tests of when expired records leave the file, and when their steps leave it.

use crate::support;

use std::path::Path;
use std::time::{Duration, Instant};

use idem_runtime::Store;
use idem_runtime::protocol::RecordStepAnswer;
use idem_sqlite::SqliteStore;

use support::*;

fn count(path: &Path, filter: &str) -> i64 {
    number(path, &format!("SELECT count(*) FROM idem_records WHERE {filter}"))
}

#[tokio::test]
async fn a_purge_takes_as_many_transactions_as_its_limit_needs() {
    let (_folder, path, store) = opened();
    complete(&store, &key("live"), b"x").await;
    drop(store);
    sqlite(&path)
        .execute_batch(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500) \
             INSERT INTO idem_records SELECT scope, 'over/' || i, state, owner, fence, attempt, recovered, on_crash, \
             lease_until, retry_at, ttl, fingerprint, tombstone, created_at, completed_at, i, steps, i, result \
             FROM idem_records, n WHERE key = 'live'",
        )
        .unwrap();
    // A store that purges nothing by itself.
    let store = SqliteStore::builder(&path).must_exist().open().unwrap();
    assert_eq!(store.purge(1_400).await.unwrap(), 1_400);
    assert_eq!(count(&path, "true"), 101);
    assert_eq!(store.purge(usize::MAX).await.unwrap(), 100);
    assert_eq!(replayed(&store, &key("live")).await, b"x");
}

#[tokio::test]
async fn opening_purges_for_programs_that_end_before_the_next_purge() {
    let (_folder, path, store) = opened();
    complete(&store, &key("over"), b"x").await;
    drop(store);
    sqlite(&path).execute_batch("UPDATE idem_records SET expires_at = 1, purge_at = 1").unwrap();
    drop(SqliteStore::open(&path).unwrap());
    assert_eq!(count(&path, "true"), 0);
}

#[tokio::test]
async fn expired_records_leave_by_themselves_while_nothing_is_asked() {
    let (_folder, path, store) = opened();
    let short = Duration::from_millis(1);
    for i in 0..20 {
        let request = claim_request().with_lease(short).with_ttl(short);
        store.claim(&key(&format!("{i}")), &request).await.unwrap();
    }
    complete(&store, &key("live"), b"x").await;
    let started = Instant::now();
    while count(&path, "key <> 'live'") > 0 {
        assert!(started.elapsed() < Duration::from_secs(20), "they are still there");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(replayed(&store, &key("live")).await, b"x");
}

#[tokio::test]
async fn steps_leave_the_file_with_their_record_and_when_it_has_a_result() {
    let (_folder, path, store) = opened();
    let steps_left = || number(&path, "SELECT count(*) FROM idem_steps");
    for end in ["completed", "purged"] {
        let key = key(end);
        let (owner, grant) = granted(&store, &key).await;
        for position in 0..3 {
            let request = recording(owner, grant.fence, position, "a step", b"value");
            assert_eq!(store.record_step(&key, &request).await.unwrap(), RecordStepAnswer::Recorded);
        }
        assert_eq!(steps_left(), 3, "{end}");
        if end == "completed" {
            finish(&store, &key, owner, grant.fence, b"receipt").await;
        } else {
            sqlite(&path).execute("UPDATE idem_records SET expires_at = 1, purge_at = 1", ()).unwrap();
            store.purge(100).await.unwrap();
        }
        assert_eq!(steps_left(), 0, "{end}");
    }
}
