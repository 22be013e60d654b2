//! Tests of many callers and many handles on one file: what they share, and what is decided once.

use crate::support;

use std::collections::HashSet;
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use futures_util::future::{join, join_all};
use idem_runtime::Store;
use idem_sqlite::SqliteStore;

use support::*;

/// How many transactions are in the write-ahead log. Only the last frame of a transaction contains the size
/// of the database (SQLite file format, section 4.1).
fn commits(path: &Path) -> usize {
    let log = std::fs::read(path.with_extension("db-wal")).unwrap_or_default();
    let Some(header) = log.get(..32) else { return 0 };
    let salts = &header[16..24];
    let page = u32::from_be_bytes(header[8..12].try_into().unwrap());
    log[32..]
        .chunks_exact(24 + usize::try_from(page).unwrap())
        .filter(|frame| &frame[8..16] == salts && frame[4..8] != [0; 4])
        .count()
}

#[tokio::test]
async fn operations_that_wait_together_are_committed_together() {
    let (_folder, path, store) = opened();
    complete(&store, &key("first"), b"x").await;
    for (count, most) in [(300, 1), (2_000, 4)] {
        let keys: Vec<_> = (0..count).map(|i| key(&format!("{count}/{i}"))).collect();
        let locked = lock(&path);
        let before = commits(&path);
        // The lock is released when all claims have been sent.
        let (owners, ()) = join(join_all(keys.iter().map(|key| granted(&store, key))), async {
            locked.execute_batch("ROLLBACK").unwrap();
        })
        .await;
        let transactions = commits(&path) - before;
        assert!((1..=most).contains(&transactions), "{count} claims took {transactions} transactions");
        assert_eq!(owners.iter().map(|(_, grant)| grant.fence).collect::<HashSet<_>>().len(), count);
    }
}

#[tokio::test]
async fn of_dropped_calls_a_result_is_recorded_before_the_last_handle_is_gone_and_no_claim_is_granted() {
    let (_folder, path, store) = opened();
    let (owner, grant) = granted(&store, &key("kept")).await;
    let locked = lock(&path);
    let (kept, left) = (key("kept"), key("left"));
    {
        let (request, completion) = (claim_request(), completion(owner, grant.fence, b"x"));
        let mut claim = pin!(store.claim(&left, &request));
        let mut complete = pin!(store.complete(&kept, &completion));
        let mut context = Context::from_waker(Waker::noop());
        assert!(claim.as_mut().poll(&mut context).is_pending());
        assert!(complete.as_mut().poll(&mut context).is_pending());
    }
    let holder = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        drop(locked);
    });
    drop(store);
    holder.join().unwrap();
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(replayed(&store, &kept).await, b"x");
    assert_eq!(store.get(&left).await.unwrap(), None);
}
