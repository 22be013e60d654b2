//! Tests of a file that is locked, removed, replaced, damaged, full or of another program: there is a typed error in
//! time, nothing is created or destroyed, and afterwards everything is still there.

use crate::support;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use idem_runtime::protocol::{ClaimAnswer, CompleteAnswer};
use idem_runtime::{Store, StoreError, StoreErrorKind};
use idem_sqlite::SqliteStore;
use rusqlite::Connection;

use support::*;

const PATIENCE: Duration = Duration::from_millis(300);
/// An operation fails at most this long after its timeout.
const BOUND: Duration = Duration::from_secs(4);

fn impatient(path: &Path) -> SqliteStore {
    SqliteStore::builder(path).busy_timeout(PATIENCE).open().unwrap()
}

fn lock(path: &Path) -> Connection {
    let connection = sqlite(path);
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    connection
}

/// Every file of a folder with its content.
fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

/// Checks that opening is refused and the folder is unchanged, byte for byte.
fn refused(path: &Path) -> StoreError {
    let before = contents(path.parent().unwrap());
    let error = SqliteStore::builder(path).busy_timeout(PATIENCE).open().unwrap_err();
    let after = contents(path.parent().unwrap());
    assert!(before == after, "{error}: the folder changed");
    error
}

async fn all_operations_are_unavailable(store: &SqliteStore) {
    let started = Instant::now();
    let key = key("some");
    let request = claim_request();
    let fence = idem_runtime::protocol::Fence::new(1);
    let cause = idem_runtime::protocol::ReleaseCause::Failed;
    let completion = completion(request.owner, fence, b"x");
    let (renewal, release) = (renewal(request.owner, fence), release_request(request.owner, fence, cause));
    let resolution = idem_runtime::protocol::Resolution::Release;
    let (claim, complete, renew, release, resolve, forget, purge) = tokio::join!(
        store.claim(&key, &request),
        store.complete(&key, &completion),
        store.renew(&key, &renewal),
        store.release(&key, &release),
        store.resolve(&key, &resolution),
        store.forget(&key),
        store.purge(10),
    );
    let errors = [
        claim.unwrap_err(),
        complete.unwrap_err(),
        renew.unwrap_err(),
        release.unwrap_err(),
        resolve.unwrap_err(),
        forget.unwrap_err(),
        purge.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    }
    assert!(started.elapsed() < PATIENCE + BOUND, "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_lock_by_another_program_is_waited_for() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let store = SqliteStore::open(&path).unwrap();
    let locked = lock(&path);
    let holder = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(1));
        locked.execute_batch("COMMIT").unwrap();
    });
    let started = Instant::now();
    complete(&store, &key("a"), b"x").await;
    assert!(started.elapsed() >= Duration::from_millis(900));
    holder.join().unwrap();
    assert_eq!(replayed(&store, &key("a")).await, b"x");
}

#[tokio::test]
async fn a_lock_that_never_ends_is_an_error_in_time_and_nothing_was_applied() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let store = impatient(&path);
    complete(&store, &key("before"), b"x").await;
    let locked = lock(&path);
    all_operations_are_unavailable(&store).await;
    drop(locked);
    assert_eq!(store.get(&key("some")).await.unwrap(), None);
    complete(&store, &key("some"), b"y").await;
    assert_eq!(replayed(&store, &key("before")).await, b"x");
}

#[tokio::test]
async fn operations_that_come_one_after_another_are_all_answered_in_time_under_a_lock() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let store = impatient(&path);
    let locked = lock(&path);
    let mut asked = Vec::new();
    for i in 0..20 {
        let store = store.clone();
        asked.push(tokio::spawn(async move {
            let started = Instant::now();
            let error = store.claim(&key(&format!("{i}")), &claim_request()).await.unwrap_err();
            (error.kind(), started.elapsed())
        }));
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    for ask in asked {
        let (kind, took) = ask.await.unwrap();
        assert_eq!(kind, StoreErrorKind::Unavailable);
        assert!(took < PATIENCE + Duration::from_secs(1), "{took:?}");
    }
    drop(locked);
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

#[tokio::test]
async fn a_folder_that_is_removed_is_not_created_again() {
    let folder = folder();
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let store = impatient(&inner.join("idem.db"));
    complete(&store, &key("a"), b"x").await;
    fs::remove_dir_all(&inner).unwrap();
    all_operations_are_unavailable(&store).await;
    assert_eq!(store.get(&key("a")).await.unwrap_err().kind(), StoreErrorKind::Unavailable);
    drop(store);
    assert!(!inner.exists());
}

#[tokio::test]
async fn a_folder_that_comes_back_brings_everything_back() {
    let folder = folder();
    let (here, away) = (folder.path().join("here"), folder.path().join("away"));
    fs::create_dir(&here).unwrap();
    let store = impatient(&here.join("idem.db"));
    complete(&store, &key("a"), b"x").await;
    let (owner, grant) = granted(&store, &key("b")).await;
    fs::rename(&here, &away).unwrap();
    all_operations_are_unavailable(&store).await;
    assert!(!here.exists());
    fs::rename(&away, &here).unwrap();
    assert_eq!(replayed(&store, &key("a")).await, b"x");
    let done = store.complete(&key("b"), &completion(owner, grant.fence, b"y")).await.unwrap();
    assert_eq!(done, CompleteAnswer::Done);
    drop(store);
    assert_eq!(integrity(&here.join("idem.db")), "ok");
}

#[tokio::test]
async fn another_database_of_idem_in_its_place_is_used_from_then_on() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let other = folder.path().join("other.db");
    let store = impatient(&other);
    complete(&store, &key("in other"), b"other").await;
    drop(store);

    let store = impatient(&path);
    complete(&store, &key("in first"), b"first").await;
    assert_eq!(replayed(&store, &key("in first")).await, b"first");
    for suffix in ["", "-wal", "-shm"] {
        let name = |stem: &str| folder.path().join(format!("{stem}.db{suffix}"));
        fs::rename(name("idem"), name("kept")).unwrap();
    }
    fs::rename(&other, &path).unwrap();
    assert_eq!(replayed(&store, &key("in other")).await, b"other");
    assert_eq!(store.get(&key("in first")).await.unwrap(), None);
    complete(&store, &key("later"), b"later").await;
    drop(store);

    assert_eq!(integrity(&path), "ok");
    let kept = impatient(&folder.path().join("kept.db"));
    assert_eq!(replayed(&kept, &key("in first")).await, b"first");
    assert_eq!(kept.get(&key("later")).await.unwrap(), None);
    let store = impatient(&path);
    assert_eq!(replayed(&store, &key("later")).await, b"later");
}

#[tokio::test]
async fn the_log_of_the_file_before_is_not_played_into_the_one_in_its_place() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let backup = folder.path().join("backup.db");
    let store = impatient(&backup);
    complete(&store, &key("in backup"), b"backup").await;
    drop(store);
    let before = fs::read(&backup).unwrap();

    let store = impatient(&path);
    complete(&store, &key("in first"), b"first").await;
    // As an operator who forgets the log would do.
    fs::rename(&path, folder.path().join("kept.db")).unwrap();
    fs::rename(&backup, &path).unwrap();
    all_operations_are_unavailable(&store).await;
    assert_eq!(fs::read(&path).unwrap(), before);

    for suffix in ["-wal", "-shm"] {
        let name = |stem: &str| folder.path().join(format!("{stem}.db{suffix}"));
        fs::rename(name("idem"), name("kept")).unwrap();
    }
    assert_eq!(replayed(&store, &key("in backup")).await, b"backup");
    complete(&store, &key("later"), b"later").await;
    drop(store);
    assert_eq!(integrity(&path), "ok");
    let kept = impatient(&folder.path().join("kept.db"));
    assert_eq!(replayed(&kept, &key("in first")).await, b"first");
}

#[tokio::test]
async fn another_file_in_its_place_is_left_alone_until_the_database_is_back() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let kept = folder.path().join("kept.db");
    let store = impatient(&path);
    complete(&store, &key("a"), b"x").await;
    fs::rename(&path, &kept).unwrap();
    fs::write(&path, "notes\n").unwrap();
    all_operations_are_unavailable(&store).await;
    assert_eq!(store.get(&key("a")).await.unwrap_err().kind(), StoreErrorKind::Unavailable);
    assert_eq!(fs::read(&path).unwrap(), b"notes\n");
    fs::rename(&kept, &path).unwrap();
    assert_eq!(replayed(&store, &key("a")).await, b"x");
    complete(&store, &key("b"), b"y").await;
    drop(store);
    assert_eq!(integrity(&path), "ok");
}

#[test]
fn a_file_that_is_no_database_is_refused_and_unchanged() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    for text in ["x", "notes of mine\n", &"long ".repeat(10_000), "SQLite format 3\0and then nonsense"] {
        fs::write(&path, text).unwrap();
        let error = refused(&path);
        assert!(
            matches!(error.kind(), StoreErrorKind::Configuration | StoreErrorKind::Unavailable),
            "{error}"
        );
        assert!(error.to_string().contains("idem.db"), "{error}");
    }
}

#[test]
fn a_database_of_another_program_is_refused_and_unchanged() {
    let make: [(&str, &str); 5] = [
        ("tables", "CREATE TABLE users (name); INSERT INTO users VALUES ('me')"),
        ("id", "PRAGMA application_id = 42; CREATE TABLE users (name)"),
        ("only id", "PRAGMA application_id = 42; CREATE TABLE t (x); DROP TABLE t"),
        ("only version", "PRAGMA user_version = 3; CREATE TABLE t (x); DROP TABLE t"),
        ("log", "PRAGMA journal_mode = WAL; CREATE TABLE users (name); INSERT INTO users VALUES ('me')"),
    ];
    for (name, sql) in make {
        let folder = folder();
        let path = folder.path().join("theirs.db");
        let theirs = Connection::open(&path).unwrap();
        theirs.execute_batch(sql).unwrap();
        theirs.close().unwrap();
        assert_eq!(refused(&path).kind(), StoreErrorKind::Configuration, "{name}");
    }
}

#[test]
fn another_programs_log_is_not_moved_into_its_database() {
    let (folder, aside) = (folder(), folder());
    let theirs = Connection::open(aside.path().join("theirs.db")).unwrap();
    theirs.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE users (name)").unwrap();
    // A log that was not checkpointed, as after a crash.
    for name in ["theirs.db", "theirs.db-wal"] {
        fs::copy(aside.path().join(name), folder.path().join(name)).unwrap();
    }
    let path = folder.path().join("theirs.db");
    let read = || (fs::read(&path).unwrap(), fs::read(path.with_extension("db-wal")).unwrap());
    let before = read();
    assert!(!before.1.is_empty());
    let error = SqliteStore::open(&path).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error}");
    assert!(before == read());
}

#[tokio::test]
async fn a_newer_layout_is_refused_and_unchanged() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    complete(&impatient(&path), &key("a"), b"x").await;
    let newer = sqlite(&path);
    newer.execute_batch("PRAGMA user_version = 99").unwrap();
    newer.close().unwrap();
    let error = refused(&path);
    assert_eq!(error.kind(), StoreErrorKind::Configuration);
    assert!(error.to_string().contains("upgrade"), "{error}");
}

#[tokio::test]
async fn a_layout_that_was_tampered_with_is_refused_and_unchanged() {
    for damage in [
        "DROP TABLE idem_records",
        "DROP TABLE idem_meta",
        "ALTER TABLE idem_records DROP COLUMN fingerprint",
        "ALTER TABLE idem_records RENAME COLUMN fence TO fences",
        "PRAGMA journal_mode = DELETE; DROP TABLE idem_records",
    ] {
        let folder = folder();
        let path = folder.path().join("idem.db");
        complete(&impatient(&path), &key("a"), b"x").await;
        let other = sqlite(&path);
        other.execute_batch(damage).unwrap();
        other.close().unwrap();
        let error = refused(&path);
        assert_eq!(error.kind(), StoreErrorKind::Configuration, "{damage}: {error}");
    }
}

#[tokio::test]
async fn a_damaged_file_is_refused_and_unchanged() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let store = impatient(&path);
    for i in 0..100 {
        complete(&store, &key(&format!("{i}")), &[b'x'; 1_000]).await;
    }
    drop(store);
    let whole = fs::read(&path).unwrap();
    let mut beginning = whole.clone();
    beginning[..100].fill(0x5a);
    let mut root_pages = whole.clone();
    root_pages[4_096..5 * 4_096].fill(0x5a);
    for damaged in [beginning, root_pages, whole[..5_000].to_vec(), whole[..4_096].to_vec()] {
        fs::write(&path, damaged).unwrap();
        let error = refused(&path);
        assert!(
            matches!(error.kind(), StoreErrorKind::Configuration | StoreErrorKind::Unavailable),
            "{error}"
        );
    }
    fs::write(&path, whole).unwrap();
    assert_eq!(replayed(&impatient(&path), &key("7")).await, [b'x'; 1_000]);
}

#[tokio::test]
async fn damage_deep_in_the_file_is_an_error_and_never_an_answer() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let store = impatient(&path);
    for i in 0..200 {
        complete(&store, &key(&format!("{i}")), &[b'x'; 1_000]).await;
    }
    drop(store);
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.len();
    bytes[10 * 4_096..end - 4_096].fill(0x5a);
    fs::write(&path, bytes).unwrap();
    let Ok(store) = SqliteStore::builder(&path).busy_timeout(PATIENCE).open() else {
        return;
    };
    for i in 0..200 {
        match store.claim(&key(&format!("{i}")), &claim_request()).await {
            Ok(ClaimAnswer::Replay(_)) => {}
            Ok(other) => panic!("{i}: {other:?}"),
            Err(error) => assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}"),
        }
    }
}

#[test]
fn a_path_that_is_no_place_for_a_file_is_an_error() {
    let folder = folder();
    let absent = folder.path().join("absent").join("idem.db");
    let error = SqliteStore::open(&absent).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(!absent.parent().unwrap().exists());
    for path in [Path::new(""), folder.path(), Path::new("/dev/null"), Path::new("a\0b")] {
        let error = SqliteStore::open(path).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Configuration, "{path:?}: {error}");
    }
    assert!(contents(folder.path()).is_empty());
}

#[tokio::test]
async fn names_that_mean_something_to_sqlite_are_names_of_files() {
    let folder = folder();
    for name in [":memory:", "file:x?mode=memory", "file::memory:", "a?b=c&d%20#", " ", "-", "ü🦀"] {
        let path = folder.path().join(name);
        complete(&SqliteStore::open(&path).unwrap(), &key("a"), b"x").await;
        assert!(path.is_file(), "{name}");
        assert_eq!(replayed(&SqliteStore::open(&path).unwrap(), &key("a")).await, b"x");
    }
}

#[test]
fn settings_out_of_range_are_errors() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    for timeout in [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(3_601), Duration::MAX] {
        let error = SqliteStore::builder(&path).busy_timeout(timeout).open().unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Configuration, "{timeout:?}");
    }
    for bytes in [0, 1_000_000_000, usize::MAX] {
        let error = SqliteStore::builder(&path).max_result_bytes(bytes).open().unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Configuration, "{bytes}");
    }
    assert!(!path.exists());
}

#[test]
fn an_empty_file_is_taken_over() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    fs::write(&path, "").unwrap();
    impatient(&path);
    assert_eq!(integrity(&path), "ok");
}

#[tokio::test]
async fn a_log_without_its_database_is_not_thrown_away() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let store = impatient(&path);
    complete(&store, &key("a"), b"x").await;
    let log = fs::read(folder.path().join("idem.db-wal")).unwrap();
    drop(store);
    let whole = fs::read(&path).unwrap();
    for left in [None, Some("")] {
        fs::remove_file(&path).unwrap();
        if let Some(left) = left {
            fs::write(&path, left).unwrap();
        }
        fs::write(folder.path().join("idem.db-wal"), &log).unwrap();
        assert_eq!(refused(&path).kind(), StoreErrorKind::Unavailable);
        fs::write(&path, &whole).unwrap();
    }
    assert_eq!(replayed(&impatient(&path), &key("a")).await, b"x");
}

#[tokio::test]
async fn a_file_that_was_emptied_takes_no_operation_and_keeps_its_log() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let store = impatient(&path);
    complete(&store, &key("a"), b"x").await;
    let whole = fs::read(&path).unwrap();
    fs::write(&path, "").unwrap();
    all_operations_are_unavailable(&store).await;
    assert_eq!(refused(&path).kind(), StoreErrorKind::Unavailable);
    fs::write(&path, whole).unwrap();
    assert_eq!(replayed(&store, &key("a")).await, b"x");
    drop(store);
    assert_eq!(integrity(&path), "ok");
}

#[tokio::test]
async fn an_operation_that_fails_does_not_take_those_with_it_that_waited_beside_it() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let store = impatient(&path);
    complete(&store, &key("first"), b"x").await;
    let other = sqlite(&path);
    other
        .execute_batch(
            "CREATE TRIGGER t BEFORE INSERT ON idem_records WHEN new.key LIKE 'bad%' \
             BEGIN SELECT raise(ABORT, 'no'); END; BEGIN IMMEDIATE",
        )
        .unwrap();
    let claims = (0..60).map(|i| {
        let store = store.clone();
        async move {
            let name = format!("{}/{i}", if i % 3 == 0 { "bad" } else { "good" });
            (i % 3 == 0, store.claim(&key(&name), &claim_request()).await)
        }
    });
    let unlock = async { other.execute_batch("ROLLBACK").unwrap() };
    let (answers, ()) = futures_util::future::join(futures_util::future::join_all(claims), unlock).await;
    for (bad, answer) in answers {
        match answer {
            Ok(ClaimAnswer::Granted(_)) => assert!(!bad),
            Err(error) => assert!(bad && error.kind() == StoreErrorKind::Unavailable, "{error}"),
            Ok(other) => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_purge_that_fails_does_not_stop_anything_else() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let store = impatient(&path);
    complete(&store, &key("over"), b"x").await;
    sqlite(&path)
        .execute_batch(
            "CREATE TRIGGER t BEFORE DELETE ON idem_records BEGIN SELECT raise(ABORT, 'no'); END; \
             UPDATE idem_records SET expires_at = 1, purge_at = 1",
        )
        .unwrap();
    let started = Instant::now();
    let mut i = 0;
    // Waits longer than until the next purge.
    while started.elapsed() < Duration::from_millis(2_500) {
        complete(&store, &key(&format!("{i}")), b"y").await;
        i += 1;
    }
    assert_eq!(store.purge(10).await.unwrap_err().kind(), StoreErrorKind::Unavailable);
    sqlite(&path).execute_batch("DROP TRIGGER t").unwrap();
    assert_eq!(store.purge(10).await.unwrap(), 1);
}

#[tokio::test]
async fn tables_that_vanish_or_refuse_are_errors_in_time() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let store = impatient(&path);
    complete(&store, &key("a"), b"x").await;
    sqlite(&path)
        .execute_batch("CREATE TRIGGER t BEFORE INSERT ON idem_meta BEGIN SELECT raise(ABORT, 'no'); END")
        .unwrap();
    let started = Instant::now();
    assert_eq!(store.forget(&key("a")).await.unwrap_err().kind(), StoreErrorKind::Unavailable);
    assert_eq!(replayed(&store, &key("a")).await, b"x");
    sqlite(&path).execute_batch("DROP TABLE idem_meta").unwrap();
    let error = store.claim(&key("new"), &claim_request()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert_eq!(replayed(&store, &key("a")).await, b"x");
    sqlite(&path).execute_batch("DROP TABLE idem_records").unwrap();
    all_operations_are_unavailable(&store).await;
    assert_eq!(store.get(&key("a")).await.unwrap_err().kind(), StoreErrorKind::Unavailable);
    assert!(started.elapsed() < 3 * BOUND);
}
