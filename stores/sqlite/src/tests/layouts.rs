//! The migration to a layout that this version does not have, so that it works when there is one.

use std::path::Path;

use idem_core::protocol::ClaimAnswer;
use idem_core::{Store, StoreErrorKind};
use rusqlite::Connection;

use super::{claim_request, completion, folder, key, opening};
use crate::SqliteStore;
use crate::file::DatabaseFile;
use crate::schema::{self, LAYOUT, Opening, Purpose};

/// A made-up next layout: a column, and an index on it in a step of its own.
const NEXT: &[&str] = &[
    LAYOUT[0],
    "ALTER TABLE idem_records ADD COLUMN tenant TEXT; UPDATE idem_records SET tenant = scope || '!'",
    "CREATE INDEX idem_records_tenant ON idem_records (tenant)",
];
/// The same, with a last step that cannot be done.
const BROKEN: &[&str] = &[
    LAYOUT[0],
    NEXT[1],
    "CREATE INDEX idem_records_tenant ON idem_records (tenant); INSERT INTO nowhere VALUES (1)",
];

/// A file of this version's layout, with one result in it.
async fn filled(path: &Path) {
    let store = SqliteStore::open(path).unwrap();
    let claim = claim_request();
    let ClaimAnswer::Granted(grant) = store.claim(&key("done"), &claim).await.unwrap() else {
        panic!("not granted")
    };
    store.complete(&key("done"), &completion(claim.owner, grant.fence, 5)).await.unwrap();
}

fn layout(path: &Path) -> i64 {
    Connection::open(path).unwrap().query_row("PRAGMA user_version", (), |row| row.get(0)).unwrap()
}

fn has_index(path: &Path) -> bool {
    let count = "SELECT count(*) FROM sqlite_schema WHERE name = 'idem_records_tenant'";
    Connection::open(path).unwrap().query_row(count, (), |row| row.get::<_, i64>(0)).unwrap() == 1
}

async fn is_replayed(path: &Path, store: &SqliteStore) {
    let answer = store.claim(&key("done"), &claim_request()).await.unwrap();
    assert!(matches!(answer, ClaimAnswer::Replay(_)), "{answer:?}");
    let tenant = "SELECT tenant FROM idem_records WHERE key = 'done'";
    let tenant: String = Connection::open(path).unwrap().query_row(tenant, (), |row| row.get(0)).unwrap();
    assert_eq!(tenant, "test!");
}

#[tokio::test]
async fn processes_that_migrate_at_once_take_each_step_once_and_keep_the_records_and_another_goes_on() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    filled(&path).await;
    let running = SqliteStore::open(&path).unwrap();
    let claim = claim_request();
    let ClaimAnswer::Granted(grant) = running.claim(&key("in flight"), &claim).await.unwrap() else {
        panic!("not granted")
    };
    let starting: Vec<_> = (0..8)
        .map(|_| {
            let path = path.clone();
            std::thread::spawn(move || schema::open(&path, opening(NEXT)).map(drop))
        })
        .collect();
    for each in starting {
        each.join().unwrap().unwrap();
    }
    assert_eq!((layout(&path), has_index(&path)), (3, true));
    running.complete(&key("in flight"), &completion(claim.owner, grant.fence, 5)).await.unwrap();
    is_replayed(&path, &running).await;
    let (connection, identity) = schema::open(&path, opening(NEXT)).unwrap();
    let store = SqliteStore::builder(&path).start(DatabaseFile::new(path.clone(), identity), connection);
    is_replayed(&path, &store.unwrap()).await;
    // This version leaves alone what it does not know.
    let error = SqliteStore::open(&path).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration);
    assert!(error.to_string().contains("newer idem"), "{error}");
}

#[tokio::test]
async fn a_migration_that_ended_halfway_goes_on_where_it_was() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    filled(&path).await;
    assert!(schema::open(&path, opening(BROKEN)).is_err());
    assert_eq!(
        (layout(&path), has_index(&path)),
        (2, false),
        "the second step is there, and nothing of the third"
    );
    let tool = Opening { purpose: Purpose::Examine, ..opening(NEXT) };
    let error = schema::open(&path, tool).unwrap_err();
    assert!(error.to_string().contains("has layout 2, and this idem reads 3"), "{error}");
    assert_eq!(layout(&path), 2);
    schema::open(&path, opening(NEXT)).unwrap();
    assert_eq!((layout(&path), has_index(&path)), (3, true));
}
