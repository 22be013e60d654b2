//! A folder or a file that is removed, comes back or has another file in its place.

use std::fs;
use std::time::Duration;

use idem_runtime::{Store, StoreErrorKind};
use idem_sqlite::SqliteStore;

use super::{all_operations_are_unavailable, impatient};
use crate::support::*;

#[tokio::test]
async fn a_folder_that_comes_back_brings_everything_back() {
    let folder = folder();
    let (here, away) = (folder.path().join("here"), folder.path().join("away"));
    fs::create_dir(&here).unwrap();
    let store = impatient(&here.join("idem.db"));
    complete(&store, &key("a"), b"x").await;
    let (owner, grant) = granted(&store, &key("b")).await;
    fs::rename(&here, &away).unwrap();
    all_operations_are_unavailable(&store).await;
    assert!(!here.exists());
    fs::rename(&away, &here).unwrap();
    assert_eq!(replayed(&store, &key("a")).await, b"x");
    finish(&store, &key("b"), owner, grant.fence, b"y").await;
    drop(store);
    assert_eq!(integrity(&here.join("idem.db")), "ok");
}

#[tokio::test]
async fn another_database_of_idem_in_its_place_is_used_from_then_on() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let other = folder.path().join("other.db");
    let store = impatient(&other);
    complete(&store, &key("in other"), b"other").await;
    drop(store);

    let store = impatient(&path);
    complete(&store, &key("in first"), b"first").await;
    assert_eq!(replayed(&store, &key("in first")).await, b"first");
    rename(&folder, "idem", "kept", WHOLE);
    fs::rename(&other, &path).unwrap();
    assert_eq!(replayed(&store, &key("in other")).await, b"other");
    assert_eq!(store.get(&key("in first")).await.unwrap(), None);
    complete(&store, &key("later"), b"later").await;
    drop(store);

    assert_eq!(integrity(&path), "ok");
    let kept = impatient(&folder.path().join("kept.db"));
    assert_eq!(replayed(&kept, &key("in first")).await, b"first");
    assert_eq!(kept.get(&key("later")).await.unwrap(), None);
    let store = impatient(&path);
    assert_eq!(replayed(&store, &key("later")).await, b"later");
}

#[tokio::test]
async fn the_log_of_the_file_before_is_not_played_into_the_one_in_its_place() {
    for is_written_by_another in [false, true] {
        let folder = folder();
        let (path, backup) = (folder.path().join("idem.db"), folder.path().join("backup.db"));
        complete(&impatient(&backup), &key("in backup"), b"backup").await;
        let before = fs::read(&backup).unwrap();
        // The other store writes the log as a store of another process would.
        let (store, other) = (impatient(&path), impatient(&path));
        complete(if is_written_by_another { &other } else { &store }, &key("in first"), b"first").await;
        // Replaces the file as an operator who forgets the log would do.
        rename(&folder, "idem", "kept", &[""]);
        fs::rename(&backup, &path).unwrap();
        all_operations_are_unavailable(&store).await;
        assert_eq!(fs::read(&path).unwrap(), before);

        rename(&folder, "idem", "kept", &["-wal", "-shm"]);
        assert_eq!(replayed(&store, &key("in backup")).await, b"backup");
        complete(&store, &key("later"), b"later").await;
        drop((store, other));
        assert_eq!(integrity(&path), "ok");
        let kept = impatient(&folder.path().join("kept.db"));
        assert_eq!(replayed(&kept, &key("in first")).await, b"first");
    }
}

#[tokio::test]
async fn a_lock_of_the_file_before_does_not_hold_up_the_one_in_its_place() {
    let folder = folder();
    let (path, backup) = (folder.path().join("idem.db"), folder.path().join("backup.db"));
    complete(&impatient(&backup), &key("in backup"), b"backup").await;
    let store = impatient(&path);
    complete(&store, &key("in first"), b"first").await;
    let other = sqlite(&path);
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    rename(&folder, "idem", "kept", WHOLE);
    fs::rename(&backup, &path).unwrap();
    complete(&store, &key("later"), b"later").await;
    assert_eq!(replayed(&store, &key("in backup")).await, b"backup");
}

/// The transaction of the claim waits to begin while the file is moved away or replaced.
#[tokio::test]
async fn what_waited_for_another_writer_is_not_written_into_a_file_that_is_gone() {
    for is_replaced in [false, true] {
        let folder = folder();
        let (path, kept) = (folder.path().join("idem.db"), folder.path().join("kept.db"));
        let store = impatient(&path);
        complete(&store, &key("a"), b"x").await;
        let other = sqlite(&path);
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let claim = tokio::spawn({
            let store = store.clone();
            async move { store.claim(&key("b"), &claim_request()).await }
        });
        tokio::time::sleep(Duration::from_millis(200)).await;
        fs::rename(&path, &kept).unwrap();
        if is_replaced {
            fs::write(&path, vec![b' '; 4096]).unwrap();
        }
        other.execute_batch("ROLLBACK").unwrap();
        let error = claim.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        fs::rename(&kept, &path).unwrap();
        assert_eq!(store.get(&key("b")).await.unwrap(), None);
        assert_eq!(replayed(&store, &key("a")).await, b"x");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn the_log_of_a_file_behind_a_link_is_looked_for_beside_that_file() {
    let folder = folder();
    let (path, backup) = (folder.path().join("idem.db"), folder.path().join("backup.db"));
    complete(&impatient(&backup), &key("in backup"), b"backup").await;
    let before = fs::read(&backup).unwrap();
    fs::create_dir(folder.path().join("links")).unwrap();
    let link = folder.path().join("links").join("linked.db");
    std::os::unix::fs::symlink("../idem.db", &link).unwrap();
    let store = impatient(&link);
    complete(&store, &key("a"), b"x").await;
    let log = fs::read(folder.path().join("idem.db-wal")).unwrap();
    fs::rename(&path, folder.path().join("kept.db")).unwrap();
    fs::rename(&backup, &path).unwrap();
    all_operations_are_unavailable(&store).await;
    drop(store);
    assert_eq!(fs::read(&path).unwrap(), before);
    fs::remove_file(&path).unwrap();
    let error = SqliteStore::open(&link).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(log == fs::read(folder.path().join("idem.db-wal")).unwrap());
}

/// The store creates nothing where the database was, and does not touch another file there.
#[tokio::test]
async fn a_file_that_is_away_fails_all_operations_until_it_is_back() {
    for in_its_place in [None, Some("notes\n")] {
        let folder = folder();
        let (path, kept) = (folder.path().join("idem.db"), folder.path().join("kept.db"));
        let store = impatient(&path);
        complete(&store, &key("a"), b"x").await;
        fs::rename(&path, &kept).unwrap();
        if let Some(text) = in_its_place {
            fs::write(&path, text).unwrap();
        }
        all_operations_are_unavailable(&store).await;
        assert_eq!(store.get(&key("a")).await.unwrap_err().kind(), StoreErrorKind::Unavailable);
        assert_eq!(fs::read_to_string(&path).ok().as_deref(), in_its_place);
        fs::rename(&kept, &path).unwrap();
        assert_eq!(replayed(&store, &key("a")).await, b"x");
        complete(&store, &key("b"), b"y").await;
        drop(store);
        assert_eq!(integrity(&path), "ok");
    }
}
