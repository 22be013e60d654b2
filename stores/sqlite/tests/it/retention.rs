//! Tests of which records leave the file and which must not, and that fences rise in any case.

use crate::support;

use std::path::Path;
use std::time::{Duration, Instant};

use idem_runtime::Store;
use idem_runtime::protocol::{OnCrash, State};
use idem_sqlite::SqliteStore;

use support::*;

fn count(path: &Path, filter: &str) -> i64 {
    let count = format!("SELECT count(*) FROM idem_records WHERE {filter}");
    sqlite(path).query_row(&count, (), |row| row.get(0)).unwrap()
}

/// Polls a condition for a bounded time.
async fn eventually(what: &str, so: impl Fn() -> bool) {
    let started = Instant::now();
    while !so() {
        assert!(started.elapsed() < Duration::from_secs(20), "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn purge_deletes_what_is_over_up_to_its_limit_and_nothing_live() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let store = SqliteStore::open(&path).unwrap();
    for i in 0..10 {
        complete(&store, &key(&format!("live/{i}")), b"x").await;
    }
    let forever = claim_request().with_on_crash(OnCrash::InDoubt).with_lease(Duration::from_nanos(1));
    store.claim(&key("forever"), &forever).await.unwrap();
    let filling = sqlite(&path);
    filling
        .execute_batch(
            "BEGIN IMMEDIATE; \
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500) \
             INSERT INTO idem_records SELECT scope, 'over/' || i, state, owner, fence, attempt, recovered, on_crash, \
             lease_until, retry_at, ttl, fingerprint, tombstone, created_at, completed_at, i, steps, i, result \
             FROM idem_records, n WHERE key = 'live/0'",
        )
        .unwrap();
    // The purge waits for the lock, and so comes before those that the store does by itself.
    let (purged, ()) = tokio::join!(store.purge(100), async { filling.execute_batch("COMMIT").unwrap() });
    assert_eq!(purged.unwrap(), 100);
    assert_eq!(store.purge(0).await.unwrap(), 0);
    let after = count(&path, "key LIKE 'over/%'");
    assert!(after <= 1_400, "{after}");
    let rest = store.purge(usize::MAX).await.unwrap();
    assert!(i64::try_from(rest).unwrap() <= after);
    assert_eq!(count(&path, "key LIKE 'over/%'"), 0);
    assert_eq!(count(&path, "key LIKE 'live/%'"), 10);
    assert_eq!(store.get(&key("forever")).await.unwrap().unwrap().state, State::InFlight);
    assert_eq!(store.purge(usize::MAX).await.unwrap(), 0);
    assert_eq!(integrity(&path), "ok");
}

#[tokio::test]
async fn opening_purges_for_programs_that_end_before_the_next_purge() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let store = SqliteStore::open(&path).unwrap();
    complete(&store, &key("over"), b"x").await;
    drop(store);
    sqlite(&path).execute_batch("UPDATE idem_records SET expires_at = 1, purge_at = 1").unwrap();
    drop(SqliteStore::open(&path).unwrap());
    assert_eq!(count(&path, "true"), 0);
}

#[tokio::test]
async fn expired_records_leave_by_themselves_while_nothing_is_asked() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let store = SqliteStore::open(&path).unwrap();
    let short = Duration::from_millis(1);
    for i in 0..200 {
        let request = claim_request().with_lease(short).with_ttl(short);
        store.claim(&key(&format!("{i}")), &request).await.unwrap();
    }
    complete(&store, &key("live"), b"x").await;
    eventually("expired records are gone", || count(&path, "key <> 'live'") == 0).await;
    assert_eq!(replayed(&store, &key("live")).await, b"x");
}
