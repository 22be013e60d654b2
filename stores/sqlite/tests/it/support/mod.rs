//! Helpers for the SQLite tests.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use idem_runtime::protocol::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Grant, Owner, RecordStep, RecordedStep, Release,
    ReleaseCause, Renew, StoredResult, Verdict,
};
use idem_runtime::{Key, RecordKey, Scope, Store};
use rusqlite::Connection;
use tempfile::TempDir;

pub const LEASE: Duration = Duration::from_secs(30);
pub const TTL: Duration = Duration::from_secs(3_600);

pub fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

pub fn key_in(scope: &str, key: &str) -> RecordKey {
    RecordKey::new(Scope::new(scope.to_owned()).unwrap(), Key::new(key).unwrap())
}

pub fn key(key: &str) -> RecordKey {
    key_in("test", key)
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

pub fn release_request(owner: Owner, fence: Fence, cause: ReleaseCause) -> Release {
    Release::new(owner, fence, cause)
}

pub fn renewal(owner: Owner, fence: Fence) -> Renew {
    Renew::new(owner, fence, LEASE)
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

pub fn integrity(path: &Path) -> String {
    sqlite(path).query_row("PRAGMA integrity_check", (), |row| row.get(0)).unwrap()
}

/// The first layout, made by its original statements.
const FIRST_LAYOUT: &str = "
    CREATE TABLE idem_records (
        scope        TEXT    NOT NULL,
        key          TEXT    NOT NULL,
        state        TEXT    NOT NULL,
        owner        BLOB    NOT NULL,
        fence        INTEGER NOT NULL,
        attempt      INTEGER NOT NULL,
        recovered    INTEGER NOT NULL,
        on_crash     TEXT    NOT NULL,
        lease_until  INTEGER NOT NULL,
        retry_at     INTEGER NOT NULL,
        ttl          INTEGER NOT NULL,
        fingerprint  BLOB,
        tombstone    TEXT,
        created_at   INTEGER NOT NULL,
        completed_at INTEGER,
        expires_at   INTEGER,
        result       BLOB,
        UNIQUE (scope, key)
    ) STRICT;
    CREATE INDEX idem_records_expiry ON idem_records (expires_at) WHERE expires_at IS NOT NULL;
    CREATE TABLE idem_meta (name TEXT PRIMARY KEY NOT NULL, value INTEGER NOT NULL) STRICT;
    INSERT INTO idem_meta (name, value) VALUES ('fence_floor', 9000000000000000000);
    PRAGMA application_id = 1768187245;
    PRAGMA user_version = 1;
    PRAGMA journal_mode = WAL;";

const FOREVER: i64 = 8_000_000_000_000_000;

/// A file of the first layout, with live records in it.
pub fn first_layout(path: &Path) {
    let file = sqlite(path);
    file.execute_batch(FIRST_LAYOUT).unwrap();
    let insert = "INSERT INTO idem_records VALUES ('test', ?1, ?2, ?3, 7, 2, 0, ?4, ?5, 0, 3600000000, NULL, \
                  NULL, 5, ?6, ?7, ?8)";
    let owner = [3_u8; 16];
    for (key, state, policy, completed, expires, result) in [
        ("in flight", "in_flight", "rerun", None, Some(FOREVER), None),
        ("done", "completed", "rerun", Some(6), Some(FOREVER), Some(&b"receipt\0"[..])),
        ("doubt", "in_doubt", "in_doubt", None, None, None),
        ("over", "released", "rerun", None, Some(1), None),
    ] {
        file.execute(
            insert,
            rusqlite::params![key, state, owner, policy, FOREVER - 1, completed, expires, result],
        )
        .unwrap();
    }
}
