//! Tests of a file that cannot be used. The store must return a typed error in time, and must create and
//! destroy nothing. When the file can be used again, all records must still be there. This module itself has
//! the tests of statements that fail in a sound file, and the helpers.

mod damaged;
mod foreign;
mod locked;
mod moved;
mod paths;

use crate::support;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures_util::future::{join, join_all};
use idem_runtime::protocol::{ClaimAnswer, Fence, Release, ReleaseCause, Renew, Request, Resolution};
use idem_runtime::{Store, StoreError, StoreErrorKind};
use idem_sqlite::SqliteStore;
use tempfile::TempDir;

use support::*;

const PATIENCE: Duration = Duration::from_secs(2);
/// An operation must fail within its timeout plus this time. The time is needed because a busy machine may
/// stop a thread. [`PATIENCE`] plus this time is the default timeout, so an operation that wrongly uses the
/// default timeout fails too late.
const BOUND: Duration = Duration::from_secs(3);

fn impatient(path: &Path) -> SqliteStore {
    SqliteStore::builder(path).busy_timeout(PATIENCE).open().unwrap()
}

/// An impatient store on a new file. Its folder is deleted when the first of the returned values is dropped.
fn impatient_on_a_new_file() -> (TempDir, PathBuf, SqliteStore) {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let store = impatient(&path);
    (folder, path, store)
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
    let (key, claim, fence) = (key("some"), claim_request(), Fence::new(1));
    let requests: [Request; 5] = [
        completion(claim.owner, fence, b"x").into(),
        Renew::new(claim.owner, fence, LEASE).into(),
        Release::new(claim.owner, fence, ReleaseCause::Failed).into(),
        Resolution::Release.into(),
        claim.into(),
    ];
    let requests = requests.map(|request| store.apply(&key, request));
    let (answers, forget, purge) = tokio::join!(join_all(requests), store.forget(&key), store.purge(10));
    let mut errors: Vec<_> = answers.into_iter().map(Result::unwrap_err).collect();
    errors.extend([forget.unwrap_err(), purge.unwrap_err()]);
    for error in errors {
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    }
    assert!(started.elapsed() < PATIENCE + BOUND, "{:?}", started.elapsed());
}

#[tokio::test]
async fn an_operation_that_fails_does_not_take_those_with_it_that_waited_beside_it() {
    let (_folder, path, store) = opened();
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
    let (answers, ()) = join(join_all(claims), unlock).await;
    for (bad, answer) in answers {
        match answer {
            Ok(ClaimAnswer::Granted(_)) => assert!(!bad),
            Err(error) => assert!(bad && error.kind() == StoreErrorKind::Unavailable, "{error}"),
            Ok(other) => panic!("{other:?}"),
        }
    }
}
