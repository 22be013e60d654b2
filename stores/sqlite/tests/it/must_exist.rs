//! Tests that tools that examine the file of another program change nothing in it.

use idem_runtime::StoreErrorKind;
use idem_sqlite::SqliteStore;

#[test]
fn a_file_that_must_exist_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("idem.db");
    let error = SqliteStore::builder(&path).must_exist().open().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration);
    assert!(error.to_string().contains("there is no file"), "{error}");
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
}

#[test]
fn an_empty_file_is_not_made_into_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("idem.db");
    std::fs::write(&path, b"").unwrap();
    let error = SqliteStore::builder(&path).must_exist().open().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
}

#[test]
fn a_store_that_is_there_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("idem.db");
    drop(SqliteStore::open(&path).unwrap());
    SqliteStore::builder(&path).must_exist().open().unwrap();
}
