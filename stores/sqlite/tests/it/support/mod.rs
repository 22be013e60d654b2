//! Helpers for the SQLite tests.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use idem_runtime::protocol::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Grant, Owner, RecordStep, RecordedStep,
    StoredResult, Verdict,
};
use idem_runtime::{Key, RecordKey, Scope, Store};
use idem_sqlite::SqliteStore;
use rusqlite::Connection;
use tempfile::TempDir;

pub const LEASE: Duration = Duration::from_secs(30);
pub const TTL: Duration = Duration::from_secs(3_600);

pub fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// A store on a new file. Its folder is there as long as the first value.
pub fn opened() -> (TempDir, PathBuf, SqliteStore) {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let store = SqliteStore::open(&path).unwrap();
    (folder, path, store)
}

pub fn key(key: &str) -> RecordKey {
    RecordKey::new(Scope::new("test").unwrap(), Key::new(key).unwrap())
}

/// A claim by a new owner.
pub fn claim_request() -> Claim {
    Claim::new(Owner::random(), LEASE, TTL)
}

pub fn completion(owner: Owner, fence: Fence, result: &[u8]) -> Complete {
    Complete::new(owner, fence, Verdict::Completed, StoredResult::Value(Bytes::copy_from_slice(result)), TTL)
}

pub fn recording(owner: Owner, fence: Fence, position: u32, name: &str, result: &[u8]) -> RecordStep {
    let result = StoredResult::Value(Bytes::copy_from_slice(result));
    let step = RecordedStep::new(name.to_owned(), None, result);
    RecordStep::new(owner, fence, position, step)
}

/// Claims a key that is free.
pub async fn granted(store: &impl Store, key: &RecordKey) -> (Owner, Grant) {
    let request = claim_request();
    match store.claim(key, &request).await.unwrap() {
        ClaimAnswer::Granted(grant) => (request.owner, grant),
        other => panic!("not granted but {other:?}"),
    }
}

/// Claims and completes a key, if it is not complete already.
pub async fn complete(store: &impl Store, key: &RecordKey, result: &[u8]) {
    let request = claim_request();
    match store.claim(key, &request).await.unwrap() {
        ClaimAnswer::Granted(grant) => {
            let completion = completion(request.owner, grant.fence, result);
            assert_eq!(store.complete(key, &completion).await.unwrap(), CompleteAnswer::Done);
        }
        ClaimAnswer::Replay(_) => {}
        other => panic!("not granted but {other:?}"),
    }
}

/// The recorded result of a key.
pub async fn replayed(store: &impl Store, key: &RecordKey) -> Vec<u8> {
    match store.claim(key, &claim_request()).await.unwrap() {
        ClaimAnswer::Replay(replay) => match replay.result {
            StoredResult::Value(bytes) => bytes.to_vec(),
            other => panic!("{other:?}"),
        },
        other => panic!("not replayed but {other:?}"),
    }
}

/// Another program's connection to the file.
pub fn sqlite(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.busy_timeout(Duration::from_secs(10)).unwrap();
    connection
}

/// The same in the middle of a transaction that writes.
pub fn lock(path: &Path) -> Connection {
    let connection = sqlite(path);
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    connection
}

/// The number that a query of another program returns.
pub fn number(path: &Path, query: &str) -> i64 {
    sqlite(path).query_row(query, (), |row| row.get(0)).unwrap()
}

/// Renames a database of this folder, with the files beside it that have these suffixes.
pub fn rename(folder: &TempDir, from: &str, to: &str, suffixes: &[&str]) {
    for suffix in suffixes {
        let name = |stem: &str| folder.path().join(format!("{stem}.db{suffix}"));
        std::fs::rename(name(from), name(to)).unwrap();
    }
}

/// A database and all the files beside it.
pub const WHOLE: &[&str] = &["", "-wal", "-shm"];

pub fn integrity(path: &Path) -> String {
    sqlite(path).query_row("PRAGMA integrity_check", (), |row| row.get(0)).unwrap()
}
