//! Tests the migration with a made-up newer layout, so that the migration works when there is a real newer
//! layout.

use idem_core::{Store, StoreErrorKind};
use rusqlite::Connection;

use super::{complete, completion, folder, granted, key, opening, replayed};
use crate::SqliteStore;
use crate::file::DatabaseFile;
use crate::schema::{self, LAYOUT};

/// A made-up next layout: a column, and an index on it in a step of its own.
const NEXT: &[&str] = &[
    LAYOUT[0],
    "ALTER TABLE idem_records ADD COLUMN tenant TEXT; UPDATE idem_records SET tenant = scope || '!'",
    "CREATE INDEX idem_records_tenant ON idem_records (tenant)",
];

#[tokio::test]
async fn processes_that_migrate_at_once_take_each_step_once_and_keep_the_records_and_another_goes_on() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let running = SqliteStore::open(&path).unwrap();
    complete(&running, &key("done"), b"x").await;
    let (owner, grant) = granted(&running, &key("in flight")).await;
    let starting: Vec<_> = (0..8)
        .map(|_| {
            let path = path.clone();
            std::thread::spawn(move || schema::open(&path, opening(NEXT)).map(drop))
        })
        .collect();
    for each in starting {
        each.join().unwrap().unwrap();
    }
    let number = |query: &str| -> i64 {
        Connection::open(&path).unwrap().query_row(query, (), |row| row.get(0)).unwrap()
    };
    assert_eq!(number("PRAGMA user_version"), 3);
    assert_eq!(number("SELECT count(*) FROM sqlite_schema WHERE name = 'idem_records_tenant'"), 1);
    assert_eq!(number("SELECT count(*) FROM idem_records WHERE tenant = 'test!'"), 2);
    running.complete(&key("in flight"), &completion(owner, grant.fence, b"x")).await.unwrap();
    assert_eq!(replayed(&running, &key("done")).await, b"x");
    let (connection, identity) = schema::open(&path, opening(NEXT)).unwrap();
    let store = SqliteStore::builder(&path).start(DatabaseFile::new(path.clone(), identity), connection);
    assert_eq!(replayed(&store.unwrap(), &key("done")).await, b"x");
    // This version refuses a layout that it does not know.
    let error = SqliteStore::open(&path).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration);
    assert!(error.to_string().contains("newer idem"), "{error}");
}
