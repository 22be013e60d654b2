//! Tests of states that cannot be caused from outside: a full disk, a stuck disk, what the writer remembers,
//! and a newer layout.

mod batch;
mod layouts;
#[path = "../../kit/tests/requests/mod.rs"]
mod requests;

use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::SqliteStore;
use super::file::DatabaseFile;
use super::queue::{Op, Queue};
use super::schema::{self, Opening, Purpose};
use idem_core::Store;
use idem_core::StoreErrorKind;
use idem_core::protocol::{ClaimAnswer, CompleteAnswer};
use requests::{claim_request, complete, completion, granted, key, replayed};

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn opening(layout: &'static [&'static str]) -> Opening {
    Opening { purpose: Purpose::Use, layout, until: Instant::now() + Duration::from_secs(60) }
}

/// A new file. Its folder is deleted when the first of the returned values is dropped.
fn open() -> (TempDir, DatabaseFile, rusqlite::Connection) {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let (connection, identity) = schema::open(&path, opening(schema::LAYOUT)).unwrap();
    (folder, DatabaseFile::new(path, identity), connection)
}

#[test]
fn a_commit_is_on_disk_when_it_is_answered() {
    let (_folder, _, connection) = open();
    let pragma = |name: &str| -> String {
        connection
            .query_row(&format!("SELECT CAST({name} AS TEXT) FROM pragma_{name}"), (), |row| row.get(0))
            .unwrap()
    };
    assert_eq!(pragma("journal_mode"), "wal");
    assert_eq!(pragma("synchronous"), "2");
    // On macOS, `fsync` alone leaves data in the drive's cache; on other systems, these settings do nothing.
    assert_eq!([pragma("fullfsync"), pragma("checkpoint_fullfsync")], ["1", "1"]);
}

#[tokio::test]
async fn a_full_disk_is_an_error_and_what_was_recorded_stays() {
    let (_folder, file, connection) = open();
    connection.query_row("PRAGMA max_page_count = 40", (), |_| Ok(())).unwrap();
    let store = SqliteStore::builder(file.path()).start(file, connection).unwrap();
    let mut recorded = Vec::new();
    let error = loop {
        let (name, request) = (format!("{}", recorded.len()), claim_request());
        let recording = async {
            let ClaimAnswer::Granted(grant) = store.claim(&key(&name), &request).await? else { panic!() };
            store.complete(&key(&name), &completion(request.owner, grant.fence, &[b'x'; 10_000])).await
        };
        match recording.await {
            Ok(done) => assert_eq!(done, CompleteAnswer::Done),
            Err(error) => break error,
        }
        recorded.push(name);
    };
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("no room"), "{error}");
    assert!(recorded.len() > 5);
    for name in &recorded {
        replayed(&store, &key(name)).await;
    }
    // After space is freed, operations succeed again.
    assert!(store.forget(&key(&recorded[0])).await.unwrap());
    granted(&store, &key("after")).await;
}

#[tokio::test]
async fn what_waits_for_a_writer_that_is_stuck_is_answered_in_its_place() {
    let queue = Queue::new(Duration::from_millis(10));
    let run = |name: &str| Box::pin(queue.run(Op::Forget(key(name))));
    let started = Instant::now();
    let mut running = run("a");
    assert!(running.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let _batch = queue.take();
    let error = run("b").await.err().unwrap();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(queue.take().is_empty(), "it would be executed although its caller heard that it is not");
    let error = running.await.err().unwrap();
    assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown);
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    let mut last = run("c");
    assert!(last.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    queue.end();
    assert!(last.await.is_err());
    assert!(run("d").await.is_err());
}
