//! Tests that tools that examine the file of another program change nothing in it.

use idem_runtime::StoreErrorKind;
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
