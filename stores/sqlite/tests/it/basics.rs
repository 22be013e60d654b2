//! Tests of what any store does, on a SQLite file: records, replays, keys, and opening again.

use crate::support;

use idem_runtime::protocol::{Fence, Owner, ReleaseCause};
use idem_runtime::{Store, StoreErrorKind};
use idem_sqlite::SqliteStore;

use support::*;

#[tokio::test]
async fn debug_shows_the_path_and_nothing_else() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let store = SqliteStore::open(&path).unwrap();
    complete(&store, &key("secret-key"), b"secret-result").await;
    assert_eq!(format!("{store:?}"), format!("SqliteStore({path:?})"));
}

#[tokio::test]
async fn a_record_that_cannot_be_read_fails_alone_and_can_be_forgotten() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let store = SqliteStore::open(&path).unwrap();
    let (bad, good) = (key("bad"), key("good"));
    complete(&store, &bad, b"x").await;
    complete(&store, &good, b"y").await;
    for damage in [
        "state = 'gone'",
        "owner = x'00'",
        "fence = -1",
        "result = NULL",
        "attempt = 4294967296",
        "recovered = 2",
        "tombstone = 'x'",
    ] {
        sqlite(&path).execute_batch(&format!("UPDATE idem_records SET {damage} WHERE key = 'bad'")).unwrap();
        let error = store.get(&bad).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::CorruptRecord, "{damage}");
        assert!(!error.to_string().contains("bad"), "{error}");
        // `get` reads with a reader, and `release` with the writer; both must report the damage.
        let release = release_request(Owner::random(), Fence::new(1), ReleaseCause::Failed);
        let (bad_one, ()) = tokio::join!(store.release(&bad, &release), complete(&store, &good, b"y"));
        assert_eq!(bad_one.unwrap_err().kind(), StoreErrorKind::CorruptRecord, "{damage}");
    }
    assert!(store.forget(&bad).await.unwrap());
    assert_eq!(store.get(&bad).await.unwrap(), None);
    assert_eq!(replayed(&store, &good).await, b"y");
}
