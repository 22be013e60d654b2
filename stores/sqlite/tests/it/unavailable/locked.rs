//! A file that another program has locked.

use std::time::{Duration, Instant};

use idem_runtime::protocol::ClaimAnswer;
use idem_runtime::{Store, StoreErrorKind};
use idem_sqlite::SqliteStore;
use rusqlite::Connection;

use super::{BOUND, PATIENCE, all_operations_are_unavailable, impatient, impatient_on_a_new_file};
use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_lock_by_another_program_is_waited_for_whatever_the_clock_of_a_test_says() {
    let (_folder, path, store) = opened();
    let (locked, time) = (lock(&path), Duration::from_millis(500));
    let started = Instant::now();
    let holder = std::thread::spawn(move || {
        std::thread::sleep(time);
        locked.execute_batch("COMMIT").unwrap();
    });
    complete(&store, &key("a"), b"x").await;
    assert!(started.elapsed() >= time);
    holder.join().unwrap();
    assert_eq!(replayed(&store, &key("a")).await, b"x");
}

#[tokio::test]
async fn a_lock_that_never_ends_is_an_error_in_time_and_nothing_was_applied() {
    let (_folder, path, store) = impatient_on_a_new_file();
    complete(&store, &key("before"), b"x").await;
    let locked = lock(&path);
    all_operations_are_unavailable(&store).await;
    drop(locked);
    assert_eq!(store.get(&key("some")).await.unwrap(), None);
    complete(&store, &key("some"), b"y").await;
    assert_eq!(replayed(&store, &key("before")).await, b"x");
}

#[test]
fn opening_a_locked_file_waits_and_then_is_an_error() {
    let folder = folder();
    let path = folder.path().join("new.db");
    // A file without a layout, so that opening must write.
    let locked = Connection::open(&path).unwrap();
    locked.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let started = Instant::now();
    let error = SqliteStore::builder(&path).busy_timeout(PATIENCE).open().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(started.elapsed() >= PATIENCE && started.elapsed() < PATIENCE + BOUND);
    drop(locked);
    impatient(&path);
}

#[tokio::test]
async fn replays_do_not_wait_for_a_lock() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let store = SqliteStore::builder(&path).busy_timeout(Duration::from_secs(60)).open().unwrap();
    complete(&store, &key("a"), b"x").await;
    granted(&store, &key("b")).await;
    let locked = lock(&path);
    let started = Instant::now();
    for _ in 0..100 {
        assert_eq!(replayed(&store, &key("a")).await, b"x");
        assert!(store.get(&key("a")).await.unwrap().is_some());
        let busy = store.claim(&key("b"), &claim_request()).await.unwrap();
        assert!(matches!(busy, ClaimAnswer::Busy { .. }));
    }
    assert!(started.elapsed() < Duration::from_secs(30));
    drop(locked);
}
