//! Which paths and settings a store accepts.

use std::path::Path;
use std::time::Duration;

use idem_runtime::StoreErrorKind;
use idem_sqlite::SqliteStore;

use super::contents;
use crate::support::*;

#[test]
fn a_path_that_is_no_place_for_a_file_is_an_error() {
    let folder = folder();
    let absent = folder.path().join("absent").join("idem.db");
    let error = SqliteStore::open(&absent).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(!absent.parent().unwrap().exists());
    for path in [Path::new(""), folder.path(), Path::new("/dev/null"), Path::new("a\0b")] {
        let error = SqliteStore::open(path).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Configuration, "{path:?}: {error}");
    }
    assert!(contents(folder.path()).is_empty());
}

#[tokio::test]
async fn names_that_mean_something_to_sqlite_are_names_of_files() {
    let folder = folder();
    for name in [":memory:", "file:x?mode=memory", "file::memory:", "a?b=c&d%20#", " ", "-", "ü🦀"] {
        let path = folder.path().join(name);
        complete(&SqliteStore::open(&path).unwrap(), &key("a"), b"x").await;
        assert!(path.is_file(), "{name}");
        assert_eq!(replayed(&SqliteStore::open(&path).unwrap(), &key("a")).await, b"x");
    }
}

#[test]
fn settings_out_of_range_are_errors() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let builder = SqliteStore::builder(&path);
    for wrong in [builder.clone().busy_timeout(Duration::ZERO), builder.max_result_bytes(1_000_000_000)] {
        assert_eq!(wrong.open().unwrap_err().kind(), StoreErrorKind::Configuration);
    }
    assert!(!path.exists());
}

/// Tools that examine the file of a program change nothing in it.
#[test]
fn a_file_that_must_exist_is_not_made() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let error = SqliteStore::builder(&path).must_exist().open().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration);
    assert!(error.to_string().contains("there is no file"), "{error}");
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
    // An empty file is not made into a store either.
    std::fs::write(&path, b"").unwrap();
    let error = SqliteStore::builder(&path).must_exist().open().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
}
