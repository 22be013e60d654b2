//! Files that are damaged, cut or emptied, a log without its database, and records that cannot be read.

use std::fs;

use idem_runtime::protocol::{ClaimAnswer, RecordStepAnswer};
use idem_runtime::{Store, StoreError, StoreErrorKind};
use idem_sqlite::SqliteStore;

use super::{PATIENCE, all_operations_are_unavailable, impatient, impatient_on_a_new_file, refused};
use crate::support::*;

#[tokio::test]
async fn a_damaged_file_is_refused_and_unchanged() {
    let (_folder, path, store) = impatient_on_a_new_file();
    for i in 0..100 {
        complete(&store, &key(&format!("{i}")), &[b'x'; 1_000]).await;
    }
    drop(store);
    let whole = fs::read(&path).unwrap();
    let mut beginning = whole.clone();
    beginning[..100].fill(0x5a);
    let mut root_pages = whole.clone();
    root_pages[4_096..5 * 4_096].fill(0x5a);
    for damaged in [beginning, root_pages, whole[..5_000].to_vec(), whole[..4_096].to_vec()] {
        fs::write(&path, damaged).unwrap();
        let error = refused(&path);
        assert!(is_about_damage(&error), "{error}");
    }
    fs::write(&path, whole).unwrap();
    assert_eq!(replayed(&impatient(&path), &key("7")).await, [b'x'; 1_000]);
}

#[tokio::test]
async fn damage_deep_in_the_file_is_an_error_and_never_an_answer() {
    let (_folder, path, store) = impatient_on_a_new_file();
    for i in 0..200 {
        complete(&store, &key(&format!("{i}")), &[b'x'; 1_000]).await;
    }
    drop(store);
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.len();
    bytes[10 * 4_096..end - 4_096].fill(0x5a);
    fs::write(&path, bytes).unwrap();
    let Ok(store) = SqliteStore::builder(&path).busy_timeout(PATIENCE).open() else {
        return;
    };
    for i in 0..200 {
        match store.claim(&key(&format!("{i}")), &claim_request()).await {
            Ok(ClaimAnswer::Replay(_)) => {}
            Ok(other) => panic!("{i}: {other:?}"),
            Err(error) => assert_eq!(error.kind(), StoreErrorKind::CorruptRecord, "{error}"),
        }
    }
}

/// Whether only a person can repair the cause, by the kind of the error. The text of the error must also say
/// that the file is damaged or not idem's, and must not blame a permission.
fn is_about_damage(error: &StoreError) -> bool {
    let said = error.to_string();
    matches!(error.kind(), StoreErrorKind::Configuration | StoreErrorKind::CorruptRecord)
        && (said.contains("damaged") || said.contains("idem's"))
        && !said.contains("permission")
}

#[tokio::test]
async fn no_byte_of_the_header_makes_an_error_that_a_retry_or_a_permission_could_mend() {
    let (_folder, path, store) = impatient_on_a_new_file();
    complete(&store, &key("a"), b"x").await;
    drop(store);
    let whole = fs::read(&path).unwrap();
    for (place, flip) in (0..100).flat_map(|place| [(place, 0x01), (place, 0xff)]) {
        let mut bytes = whole.clone();
        bytes[place] ^= flip;
        fs::write(&path, bytes).unwrap();
        match SqliteStore::builder(&path).busy_timeout(PATIENCE).open() {
            Err(error) => {
                let is_newer = (60..64).contains(&place) && error.to_string().contains("newer idem");
                assert!(is_newer || is_about_damage(&error), "byte {place}: {error}");
            }
            Ok(store) => {
                if let Err(error) = store.claim(&key("a"), &claim_request()).await {
                    assert!(is_about_damage(&error), "byte {place}: {error}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_header_damaged_under_a_store_is_an_error_that_no_retry_can_mend() {
    for place in [0, 16, 18, 19, 22, 47] {
        let (_folder, path, store) = impatient_on_a_new_file();
        complete(&store, &key("a"), b"x").await;
        sqlite(&path).execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        let mut bytes = fs::read(&path).unwrap();
        bytes[place] ^= 0xff;
        // A new value of the file's change counter makes every connection read the header again.
        bytes[27] ^= 0xff;
        fs::write(&path, bytes).unwrap();
        // The store may answer once more from its memory.
        for number in 0..5 {
            if let Err(error) = store.claim(&key(&format!("new {number}")), &claim_request()).await {
                assert!(is_about_damage(&error), "byte {place}: {error}");
            }
        }
    }
}

#[tokio::test]
async fn a_log_without_its_database_is_not_thrown_away() {
    let (_folder, path, store) = impatient_on_a_new_file();
    complete(&store, &key("a"), b"x").await;
    let log = fs::read(path.with_extension("db-wal")).unwrap();
    drop(store);
    let whole = fs::read(&path).unwrap();
    for left in [None, Some("")] {
        fs::remove_file(&path).unwrap();
        if let Some(left) = left {
            fs::write(&path, left).unwrap();
        }
        fs::write(path.with_extension("db-wal"), &log).unwrap();
        assert_eq!(refused(&path).kind(), StoreErrorKind::Unavailable);
        fs::write(&path, &whole).unwrap();
    }
    assert_eq!(replayed(&impatient(&path), &key("a")).await, b"x");
}

#[tokio::test]
async fn a_file_that_was_emptied_takes_no_operation_and_keeps_its_log() {
    // What another process did before: nothing, a checkpoint, or a write and a checkpoint. After a
    // checkpoint, the store's connection must read the first page again.
    for of_another in [
        "",
        "PRAGMA wal_checkpoint(TRUNCATE)",
        "CREATE TABLE t (a); DROP TABLE t; PRAGMA wal_checkpoint(TRUNCATE)",
    ] {
        let (_folder, path, store) = impatient_on_a_new_file();
        complete(&store, &key("a"), b"x").await;
        sqlite(&path).execute_batch(of_another).unwrap();
        let whole = fs::read(&path).unwrap();
        fs::write(&path, "").unwrap();
        for _ in 0..2 {
            all_operations_are_unavailable(&store).await;
        }
        assert_eq!(fs::read(&path).unwrap(), b"", "{of_another}");
        if of_another.is_empty() {
            assert_eq!(refused(&path).kind(), StoreErrorKind::Unavailable);
        }
        fs::write(&path, whole).unwrap();
        assert_eq!(replayed(&store, &key("a")).await, b"x");
        drop(store);
        assert_eq!(integrity(&path), "ok");
    }
}

#[tokio::test]
async fn a_record_that_cannot_be_read_fails_alone_says_no_secret_and_can_be_forgotten() {
    let (_folder, path, store) = opened();
    let (bad, good) = (key("secret-key"), key("good"));
    complete(&store, &good, b"y").await;
    assert_eq!(format!("{store:?}"), format!("SqliteStore({path:?})"));
    for damage in [
        "UPDATE idem_records SET state = 'gone' WHERE key <> 'good'",
        "UPDATE idem_records SET owner = x'00' WHERE key <> 'good'",
        "UPDATE idem_records SET fence = -1 WHERE key <> 'good'",
        "UPDATE idem_records SET tombstone = 'x' WHERE key <> 'good'",
        "UPDATE idem_steps SET step = x'ff'",
        "DELETE FROM idem_steps",
    ] {
        let (owner, grant) = granted(&store, &bad).await;
        let step = recording(owner, grant.fence, 0, "reserve", b"secret-value");
        assert_eq!(store.record_step(&bad, &step).await.unwrap(), RecordStepAnswer::Recorded);
        sqlite(&path).execute(damage, ()).unwrap();
        // `get` reads with a reader, and `record_step` with the writer; both must report the damage.
        let (read, step, beside) =
            tokio::join!(store.get(&bad), store.record_step(&bad, &step), replayed(&store, &good));
        assert_eq!(beside, b"y");
        for error in [read.unwrap_err(), step.unwrap_err()] {
            assert_eq!(error.kind(), StoreErrorKind::CorruptRecord, "{damage}");
            assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
        }
        assert!(store.forget(&bad).await.unwrap(), "{damage}");
    }
}
