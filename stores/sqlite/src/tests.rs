//! Tests of states that cannot be caused from outside: a full disk, a stuck disk, arbitrary records, a next
//! layout.

mod batch;
mod layouts;

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::SqliteStore;
use super::batch::Session;
use super::file::DatabaseFile;
use super::queue::{Op, Pace, Queue};
use super::schema::{self, Opening, Purpose};
use idem_core::Store;
use idem_core::StoreErrorKind;
use idem_core::protocol::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Owner, StoredResult, Verdict,
};
use idem_core::{Key, RecordKey, Scope};

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn key(key: &str) -> RecordKey {
    RecordKey::new(Scope::new("test").unwrap(), Key::new(key).unwrap())
}

fn claim_request() -> Claim {
    Claim::new(Owner::random(), Duration::from_secs(30), Duration::from_secs(3_600))
}

fn completion(owner: Owner, fence: Fence, size: usize) -> Complete {
    Complete::new(
        owner,
        fence,
        Verdict::Completed,
        StoredResult::Value(vec![b'x'; size].into()),
        Duration::from_secs(3_600),
    )
}

fn opening(layout: &'static [&'static str]) -> Opening {
    Opening { purpose: Purpose::Use, layout, until: Instant::now() + Duration::from_secs(60) }
}

/// A new file. Its folder is there as long as the first value.
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
        let grant = match store.claim(&key(&name), &request).await {
            Ok(ClaimAnswer::Granted(grant)) => grant,
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        };
        let completion = completion(request.owner, grant.fence, 10_000);
        match store.complete(&key(&name), &completion).await {
            Ok(CompleteAnswer::Done) => recorded.push(name),
            Ok(_) => panic!("lost"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("no room"), "{error}");
    assert!(recorded.len() > 5);
    for name in &recorded {
        let answer = store.claim(&key(name), &claim_request()).await.unwrap();
        assert!(matches!(answer, ClaimAnswer::Replay(_)), "{answer:?}");
    }
    // After space is freed, operations succeed again.
    assert!(store.forget(&key(&recorded[0])).await.unwrap());
    let answer = store.claim(&key("after"), &claim_request()).await.unwrap();
    assert!(matches!(answer, ClaimAnswer::Granted(_)), "{answer:?}");
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

#[test]
fn a_record_that_is_kept_out_of_the_file_is_no_grant() {
    let (_folder, _, connection) = open();
    let mut session = Session::prepare(&connection).unwrap();
    let mut claim = || session.apply(&Op::Apply(key("a"), claim_request().into()));
    let ignore = "CREATE TRIGGER t BEFORE INSERT ON idem_records BEGIN SELECT raise(IGNORE); END";
    connection.execute_batch(ignore).unwrap();
    assert!(claim().is_err());
    connection.execute_batch("DROP TRIGGER t").unwrap();
    assert!(matches!(claim(), Ok(Ok(_))));
}

/// Whether the writer waits for `count` operations, checked for a while.
fn wants(queue: &Queue, count: usize) -> bool {
    let end = Instant::now() + Duration::from_secs(30);
    while queue.wanted() != count {
        if Instant::now() > end {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

#[test]
fn the_writer_waits_for_as_many_as_are_expected_and_not_for_ever() {
    let queue = Arc::new(Queue::new(Duration::from_secs(60)));
    let submit = |name: &str| queue.submit(Op::Forget(key(name)));
    let long = Pace { expected: 3, patience: Duration::from_secs(600) };
    let _first = submit("a");
    let gathering = queue.clone();
    let writer = std::thread::spawn(move || {
        assert!(gathering.wait(long).is_some());
        gathering.take().len()
    });
    assert!(wants(&queue, 3));
    let _second = submit("b");
    let _third = submit("c");
    assert_eq!(writer.join().unwrap(), 3);
    let _fourth = submit("d");
    let begun = Instant::now();
    assert!(queue.wait(Pace { patience: Duration::from_millis(20), ..long }).is_some());
    assert!(begun.elapsed() >= Duration::from_millis(20));
    assert_eq!(queue.take().len(), 1);
    // After that, a single operation wakes the writer as before.
    let waiting = queue.clone();
    let writer = std::thread::spawn(move || waiting.wait(Pace::default()).is_some());
    let _fifth = submit("e");
    assert!(writer.join().unwrap());
    // A dropped store does not wait for more operations.
    queue.close();
    assert!(queue.wait(long).is_some());
    queue.take();
    assert!(queue.wait(long).is_none());
}

#[test]
fn what_is_waited_for_is_what_was_there_and_for_a_part_of_a_commit_at_most() {
    let pace = Pace::after(Duration::from_millis(4), 64);
    assert_eq!(pace, Pace { expected: 64, patience: Duration::from_millis(1) });
    assert_eq!(Pace::after(Duration::from_secs(9), 64).patience, Duration::from_millis(5));
    // If a commit is as fast as a sleep, waiting gains nothing.
    assert_eq!(Pace::after(Duration::from_micros(100), 64).patience, Duration::ZERO);
    // A single caller needs no waiting, because its operation is already there.
    assert_eq!(Pace::after(Duration::from_millis(4), 1).expected, 1);
    assert_eq!(Pace::default().expected, 0);
}
