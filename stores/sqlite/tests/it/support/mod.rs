//! Helpers for the SQLite tests.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use idem_sqlite::SqliteStore;
use rusqlite::Connection;
use tempfile::TempDir;

pub(crate) use crate::requests::*;

pub fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// A store on a new file. Its folder is deleted when the first of the returned values is dropped.
pub fn opened() -> (TempDir, PathBuf, SqliteStore) {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let store = SqliteStore::open(&path).unwrap();
    (folder, path, store)
}

/// Another program's connection to the file.
pub fn sqlite(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.busy_timeout(Duration::from_secs(10)).unwrap();
    connection
}

/// Another program's connection, in the middle of a transaction that writes.
pub fn lock(path: &Path) -> Connection {
    let connection = sqlite(path);
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    connection
}

/// The number that a query of another program returns.
pub fn number(path: &Path, query: &str) -> i64 {
    sqlite(path).query_row(query, (), |row| row.get(0)).unwrap()
}

/// Renames files of a database in this folder: those with these suffixes. The database itself has the empty
/// suffix.
pub fn rename(folder: &TempDir, from: &str, to: &str, suffixes: &[&str]) {
    for suffix in suffixes {
        let name = |stem: &str| folder.path().join(format!("{stem}.db{suffix}"));
        std::fs::rename(name(from), name(to)).unwrap();
    }
}

/// The suffixes of a database and of all files beside it.
pub const WHOLE: &[&str] = &["", "-wal", "-shm"];

pub fn integrity(path: &Path) -> String {
    sqlite(path).query_row("PRAGMA integrity_check", (), |row| row.get(0)).unwrap()
}
