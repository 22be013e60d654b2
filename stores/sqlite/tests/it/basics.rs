//! Tests of what any store does, on a SQLite file: records, replays, keys, and opening again.

use crate::support;

use std::time::Duration;

use idem_runtime::protocol::{
    ClaimAnswer, CompleteAnswer, Fence, Fingerprint, OnCrash, Owner, ReleaseAnswer, ReleaseCause,
    RenewAnswer, Resolution, ResolveAnswer, State, StoredResult, Tombstone, Verdict,
};
use idem_runtime::{Store, StoreErrorKind};
use idem_sqlite::SqliteStore;

use support::*;

#[tokio::test]
async fn a_completed_key_replays_its_bytes_after_the_file_is_opened_again() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let key = key("a");
    let store = SqliteStore::open(&path).unwrap();
    let (owner, grant) = granted(&store, &key).await;
    assert_eq!(grant.attempt, 1);
    assert!(!grant.recovered);
    let bytes = b"{\"receipt\":\0\xff}".as_slice();
    assert_eq!(
        store.complete(&key, &completion(owner, grant.fence, bytes)).await.unwrap(),
        CompleteAnswer::Done
    );
    let before = store.get(&key).await.unwrap().unwrap();
    assert_eq!(before.state, State::Completed);
    drop(store);

    assert!(!path.with_file_name("idem.db-wal").exists(), "the last one to leave tidies up");
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.get(&key).await.unwrap().unwrap(), before);
    assert_eq!(replayed(&store, &key).await, bytes);
}

#[tokio::test]
async fn every_field_of_every_state_comes_back_as_it_was_written() {
    let folder = folder();
    let store = SqliteStore::open(folder.path().join("idem.db")).unwrap();
    let fingerprint = Some(Fingerprint::from_bytes([7; 32]));
    let century = Duration::from_secs(100 * 366 * 24 * 3600);

    let waiting = key("in flight");
    let request =
        claim_request().with_fingerprint(fingerprint).with_ttl(century).with_on_crash(OnCrash::InDoubt);
    let ClaimAnswer::Granted(grant) = store.claim(&waiting, &request).await.unwrap() else { panic!() };
    let record = store.get(&waiting).await.unwrap().unwrap();
    assert_eq!((record.state, record.owner, record.fence), (State::InFlight, request.owner, grant.fence));
    assert_eq!((record.fingerprint, record.ttl, record.on_crash), (fingerprint, century, OnCrash::InDoubt));
    assert_eq!((record.expires_at, record.result, record.completed_at), (None, None, None));
    assert_eq!(record.lease_until, record.created_at.after(request.lease));

    let abandoned = release_request(request.owner, grant.fence, ReleaseCause::Abandoned);
    assert_eq!(store.release(&waiting, &abandoned).await.unwrap(), ReleaseAnswer::InDoubt);
    assert_eq!(store.get(&waiting).await.unwrap().unwrap().state, State::InDoubt);
    let verdict = Resolution::Record(Verdict::Failed, StoredResult::Tombstone(Tombstone::NotEncodable));
    assert_eq!(store.resolve(&waiting, &verdict).await.unwrap(), ResolveAnswer::Resolved);
    let record = store.get(&waiting).await.unwrap().unwrap();
    assert_eq!(record.state, State::Failed);
    assert_eq!(record.result, Some(StoredResult::Tombstone(Tombstone::NotEncodable)));
    assert_eq!(record.expires_at, Some(record.completed_at.unwrap().after(century)));

    let released = key("released");
    let (owner, grant) = granted(&store, &released).await;
    let request = release_request(owner, grant.fence, ReleaseCause::Failed);
    assert_eq!(store.release(&released, &request).await.unwrap(), ReleaseAnswer::Released);
    let (_, again) = granted(&store, &released).await;
    assert_eq!(again.attempt, 2);
    assert!(again.fence > grant.fence);
    assert_eq!(store.release(&released, &request).await.unwrap(), ReleaseAnswer::Lost);
}

#[tokio::test]
async fn an_empty_result_is_a_result() {
    let folder = folder();
    let store = SqliteStore::open(folder.path().join("idem.db")).unwrap();
    let key = key("a");
    complete(&store, &key, b"").await;
    assert_eq!(replayed(&store, &key).await, b"");
}

#[tokio::test]
async fn a_lease_is_renewed_by_its_owner_only() {
    let folder = folder();
    let store = SqliteStore::open(folder.path().join("idem.db")).unwrap();
    let key = key("a");
    let (owner, grant) = granted(&store, &key).await;
    let mine = renewal(owner, grant.fence);
    assert_eq!(store.renew(&key, &mine).await.unwrap(), RenewAnswer::Held);
    assert_eq!(store.renew(&key, &renewal(Owner::random(), grant.fence)).await.unwrap(), RenewAnswer::Lost);
    let stale = renewal(owner, Fence::new(grant.fence.get() - 1));
    assert_eq!(store.renew(&key, &stale).await.unwrap(), RenewAnswer::Lost);
    assert!(matches!(store.claim(&key, &claim_request()).await.unwrap(), ClaimAnswer::Busy { .. }));
}

#[tokio::test]
async fn hostile_keys_stay_distinct() {
    let folder = folder();
    let store = SqliteStore::open(folder.path().join("idem.db")).unwrap();
    let long = "k".repeat(1_024);
    let names = [
        "a",
        "A",
        "a ",
        " a",
        "a\0",
        "a\0b",
        "a\0c",
        "\0",
        "\0\0",
        "é",
        "e\u{301}",
        "\u{fffd}",
        "\u{fffe}",
        "\u{ffff}",
        "\u{feff}a",
        "🦀",
        "'; DROP TABLE idem_records; --",
        "%61",
        "1",
        "01",
        "1.0",
        "1e0",
        "NULL",
        "\u{202e}a",
        long.as_str(),
        &long[1..],
    ];
    for scope in ["s", "s\0", "S"] {
        for name in names {
            let key = key_in(scope, name);
            complete(&store, &key, format!("{scope:?}{name:?}").as_bytes()).await;
        }
    }
    for scope in ["s", "s\0", "S"] {
        for name in names {
            let key = key_in(scope, name);
            assert_eq!(replayed(&store, &key).await, format!("{scope:?}{name:?}").as_bytes());
        }
    }
}

#[tokio::test]
async fn a_result_beyond_the_limit_is_refused_and_a_tombstone_is_taken() {
    let folder = folder();
    let store = SqliteStore::builder(folder.path().join("idem.db")).max_result_bytes(10).open().unwrap();
    assert_eq!(store.max_result_bytes(), Some(10));
    let key = key("a");
    let (owner, grant) = granted(&store, &key).await;
    let error = store.complete(&key, &completion(owner, grant.fence, &[1; 11])).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::TooLarge);
    assert_eq!(store.get(&key).await.unwrap().unwrap().state, State::InFlight);
    let mut tombstone = completion(owner, grant.fence, b"");
    tombstone.result = StoredResult::Tombstone(Tombstone::TooLarge);
    assert_eq!(store.complete(&key, &tombstone).await.unwrap(), CompleteAnswer::Done);
    let ClaimAnswer::Replay(replay) = store.claim(&key, &claim_request()).await.unwrap() else { panic!() };
    assert_eq!(replay.result, StoredResult::Tombstone(Tombstone::TooLarge));
}

#[tokio::test]
async fn a_large_result_comes_back_whole() {
    let folder = folder();
    let store = SqliteStore::open(folder.path().join("idem.db")).unwrap();
    let key = key("a");
    let bytes: Vec<u8> = (0..16 * 1024 * 1024).map(|i| u8::try_from(i % 251).unwrap()).collect();
    complete(&store, &key, &bytes).await;
    assert!(replayed(&store, &key).await == bytes);
}

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

#[tokio::test]
async fn claims_see_one_clock_through_any_number_of_handles() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let (one, two) = (SqliteStore::open(&path).unwrap(), SqliteStore::open(&path).unwrap());
    for round in 0..50 {
        let key = key(&format!("order/{round}"));
        let claims = (0..8).map(|i| {
            let store = if i % 2 == 0 { one.clone() } else { two.clone() };
            let key = key.clone();
            tokio::spawn(async move { store.claim(&key, &claim_request()).await.unwrap() })
        });
        let mut granted = 0;
        for claim in claims.collect::<Vec<_>>() {
            match claim.await.unwrap() {
                ClaimAnswer::Granted(_) => granted += 1,
                ClaimAnswer::Busy { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(granted, 1);
    }
}
