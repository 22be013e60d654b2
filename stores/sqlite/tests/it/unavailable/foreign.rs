//! Files of other programs and other layouts: the store refuses them, and changes no byte of them.

use std::fs;

use idem_runtime::StoreErrorKind;
use idem_sqlite::SqliteStore;
use rusqlite::Connection;

use super::refused;
use crate::support::*;

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
async fn a_layout_that_was_tampered_with_or_is_newer_is_refused_and_unchanged() {
    for damage in [
        "PRAGMA user_version = 99",
        "DROP TABLE idem_records",
        "DROP TABLE idem_steps",
        "ALTER TABLE idem_records DROP COLUMN fingerprint",
        "ALTER TABLE idem_records RENAME COLUMN fence TO fences",
        "PRAGMA journal_mode = DELETE; DROP TABLE idem_records",
    ] {
        let (_folder, path, store) = opened();
        complete(&store, &key("a"), b"x").await;
        drop(store);
        let other = sqlite(&path);
        other.execute_batch(damage).unwrap();
        other.close().unwrap();
        let error = refused(&path);
        assert_eq!(error.kind(), StoreErrorKind::Configuration, "{damage}: {error}");
    }
}
