//! Tests that tools that examine the file of another program change nothing in it.

use idem_runtime::{Store, StoreErrorKind};
use idem_sqlite::SqliteStore;

use crate::support::*;

#[test]
fn a_file_that_must_exist_is_not_made() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let error = SqliteStore::builder(&path).must_exist().open().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration);
    assert!(error.to_string().contains("there is no file"), "{error}");
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
    // Nor is an empty one made into a store.
    std::fs::write(&path, b"").unwrap();
    let error = SqliteStore::builder(&path).must_exist().open().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
}

#[tokio::test]
async fn a_database_in_its_place_is_not_made_into_a_store() {
    let folder = folder();
    let (path, other) = (folder.path().join("idem.db"), folder.path().join("other.db"));
    drop(SqliteStore::open(&path).unwrap());
    let store = SqliteStore::builder(&path).must_exist().open().unwrap();
    sqlite(&other).execute_batch("CREATE TABLE t (x); DROP TABLE t").unwrap();
    let before = std::fs::read(&other).unwrap();
    rename(&folder, "idem", "kept", WHOLE);
    std::fs::rename(&other, &path).unwrap();
    let error = store.claim(&key("a"), &claim_request()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(before == std::fs::read(&path).unwrap());
}
