//! Tests of many callers and many handles on one file: what they share, and what is decided once.

use crate::support;

use std::collections::HashSet;
use std::future::Future;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::future::{join, join_all};
use idem_runtime::Store;
use idem_runtime::protocol::{ClaimAnswer, CompleteAnswer, State};
use idem_sqlite::SqliteStore;
use rusqlite::Connection;

use support::*;

fn lock(path: &Path) -> Connection {
    let connection = sqlite(path);
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    connection
}

/// How many transactions are in the write-ahead log. The last frame of a transaction has the size of the database
/// (SQLite file format, section 4.1).
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
    let folder = folder();
    let path = folder.path().join("idem.db");
    let store = SqliteStore::open(&path).unwrap();
    complete(&store, &key("first"), b"x").await;
    for (count, most) in [(300, 1), (2_000, 4)] {
        let keys: Vec<_> = (0..count).map(|i| key(&format!("{count}/{i}"))).collect();
        let locked = lock(&path);
        let before = commits(&path);
        // The lock is released when all of them have been sent.
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
async fn an_operation_that_changes_nothing_is_not_committed() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let store = SqliteStore::open(&path).unwrap();
    let (owner, grant) = granted(&store, &key("a")).await;
    let completion = completion(owner, grant.fence, b"x");
    assert_eq!(store.complete(&key("a"), &completion).await.unwrap(), CompleteAnswer::Done);
    let before = commits(&path);
    for _ in 0..10 {
        assert_eq!(store.complete(&key("a"), &completion).await.unwrap(), CompleteAnswer::Done);
        replayed(&store, &key("a")).await;
        assert!(!store.forget(&key("absent")).await.unwrap());
    }
    assert_eq!(commits(&path), before);
}

#[tokio::test]
async fn a_claim_that_nobody_waits_for_any_more_is_not_granted() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let store = SqliteStore::open(&path).unwrap();
    let (owner, grant) = granted(&store, &key("kept")).await;
    let locked = lock(&path);
    let key_left = key("left");
    {
        let request = claim_request();
        let completion = completion(owner, grant.fence, b"x");
        let key_kept = key("kept");
        let mut claim = pin!(store.claim(&key_left, &request));
        let mut complete = pin!(store.complete(&key_kept, &completion));
        let mut context = Context::from_waker(Waker::noop());
        assert!(matches!(claim.as_mut().poll(&mut context), Poll::Pending));
        assert!(matches!(complete.as_mut().poll(&mut context), Poll::Pending));
    }
    drop(locked);
    granted(&store, &key("after")).await;
    assert_eq!(store.get(&key_left).await.unwrap(), None);
    // A dropped `complete` is still applied.
    assert_eq!(store.get(&key("kept")).await.unwrap().unwrap().state, State::Completed);
}

#[tokio::test]
async fn what_was_asked_is_done_before_the_last_handle_is_gone() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let store = SqliteStore::open(&path).unwrap();
    let (owner, grant) = granted(&store, &key("a")).await;
    let locked = lock(&path);
    {
        let completion = completion(owner, grant.fence, b"x");
        let key = key("a");
        let mut complete = pin!(store.complete(&key, &completion));
        assert!(complete.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    let holder = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        drop(locked);
    });
    drop(store);
    holder.join().unwrap();
    assert_eq!(replayed(&SqliteStore::open(&path).unwrap(), &key("a")).await, b"x");
}

#[test]
fn the_last_handle_may_be_dropped_by_the_thread_that_answers() {
    type Call = Pin<Box<dyn Future<Output = ()> + Send>>;
    /// A task that is dropped instead of run, as by a runtime that has ended.
    #[derive(Default)]
    struct DropOnWake(Mutex<Option<Call>>, Mutex<Option<mpsc::Sender<()>>>);
    impl Wake for DropOnWake {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().unwrap().take());
            self.1.lock().unwrap().take().unwrap().send(()).unwrap();
        }
    }
    let folder = folder();
    let path = folder.path().join("idem.db");
    let store = SqliteStore::open(&path).unwrap();
    let locked = lock(&path);
    let (sender, dropped) = mpsc::channel();
    let task = Arc::new(DropOnWake::default());
    *task.1.lock().unwrap() = Some(sender);
    let mut call: Call = Box::pin(async move {
        let _ = store.claim(&key("a"), &claim_request()).await;
    });
    let waker = Waker::from(task.clone());
    assert!(call.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    *task.0.lock().unwrap() = Some(call);
    drop(locked);
    dropped.recv_timeout(Duration::from_secs(20)).unwrap();
    granted_or_busy(&SqliteStore::open(&path).unwrap());
}

fn granted_or_busy(store: &SqliteStore) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let answer = runtime.block_on(store.claim(&key("a"), &claim_request())).unwrap();
    assert!(matches!(answer, ClaimAnswer::Granted(_) | ClaimAnswer::Busy { .. }), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn time_that_a_test_has_paused_is_no_reason_to_fail() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let store = SqliteStore::open(&path).unwrap();
    let locked = lock(&path);
    let holder = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        drop(locked);
    });
    complete(&store, &key("a"), b"x").await;
    holder.join().unwrap();
}
