//! Tests of encrypted results.

use crate::sealed_support;

use bytes::Bytes;
use idem::StoreExt as _;
use idem::protocol::{RecordStep, Verdict};
use idem::{
    Error, Fingerprint, KeyRing, MemoryStore, Operation, RecordKey, Scope, Store, StoreError, StoreErrorKind,
};
use idem_testing::conformance::{self, Check, Profile, Subject, Violation};
use sealed_support::{claim, granted, key, recorded, replayed, ring, step, stored, value};

const SECRET: &[u8] = b"{\"card\":\"4111 1111 1111 1111\"}";

/// The error text for bytes that were changed, or moved from another record.
const MOVED: &str = "is not what was encrypted here with key 1";

/// False for the check about sizes. An encrypted store fails this check, because `list` returns sizes as
/// stored, including the envelope.
fn sized_as_stored(check: &&Check) -> bool {
    check.name() != "a_listed_result_is_told_by_its_size_alone"
}

/// Two wrappers over one store share nothing, as in two processes. The store's limit applies to the encrypted
/// results.
#[test]
fn the_conformance_kit_holds_with_a_limit() -> Result<(), Violation> {
    for check in conformance::all().iter().filter(sized_as_stored) {
        check.run(|| async {
            let store = MemoryStore::with_max_result_bytes(4_096);
            Subject::new(store.clone().encrypted(ring()), Profile::tokio_clock())
                .handle(store.encrypted(ring()))
        })?;
    }
    Ok(())
}

fn why(error: &StoreError) -> String {
    assert_eq!(error.kind(), StoreErrorKind::CorruptRecord, "{error}");
    error.to_string()
}

/// Requests the result by `claim` and by `get`, and returns why it is not available.
async fn refused(store: &impl Store, key: &RecordKey) -> String {
    let by_claim = why(&store.claim(key, &claim()).await.unwrap_err());
    assert_eq!(why(&store.get(key).await.unwrap_err()), by_claim);
    by_claim
}

#[tokio::test]
async fn the_same_result_is_never_the_same_bytes_twice() {
    let inner = MemoryStore::new();
    let store = inner.clone().encrypted(ring());
    for name in ["a", "b"] {
        recorded(&store, &key(name), Verdict::Completed, SECRET).await;
    }
    let first = stored(&inner, &key("a")).await;
    inner.forget(&key("a")).await.unwrap();
    recorded(&store, &key("a"), Verdict::Completed, SECRET).await;
    assert_ne!(first, stored(&inner, &key("a")).await);
    assert_ne!(first, stored(&inner, &key("b")).await);
}

#[test]
fn two_keys_of_one_number_are_refused() {
    for id in [1, 2] {
        let ring = KeyRing::new(1, &[1; 32]).and_reads(2, &[2; 32]).unwrap();
        let error = ring.and_reads(id, &[3; 32]).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Configuration);
    }
}

#[tokio::test]
async fn each_changed_or_missing_byte_is_found_and_nothing_runs_again() {
    let whole = {
        let inner = MemoryStore::new();
        recorded(&inner.clone().encrypted(ring()), &key("a"), Verdict::Completed, SECRET).await;
        stored(&inner, &key("a")).await
    };
    for at in 0..whole.len() {
        for (what, bytes) in [("flipped", flipped(&whole, at)), ("cut", whole.slice(..at))] {
            let inner = MemoryStore::new();
            recorded(&inner, &key("a"), Verdict::Completed, &bytes).await;
            let error = refused(&inner.clone().encrypted(ring()), &key("a")).await;
            let expected = match (what, at) {
                (_, 0..3) => "is not encrypted",
                (_, 3) => "later version",
                ("flipped", 4..8) => "not in the ring",
                ("flipped", _) => MOVED,
                (_, 4..36) => "cut off",
                // From this length on, the bytes have all parts of an envelope.
                _ => MOVED,
            };
            assert!(error.contains(expected), "{what} at {at}: {error}");
            assert_eq!(stored(&inner, &key("a")).await, bytes, "it was touched");
        }
    }
}

fn flipped(bytes: &Bytes, at: usize) -> Bytes {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 0x10;
    bytes.into()
}

#[tokio::test]
async fn records_that_are_swapped_are_found() {
    let inner = MemoryStore::new();
    recorded(&inner.clone().encrypted(ring()), &key("a"), Verdict::Completed, SECRET).await;
    let sealed = stored(&inner, &key("a")).await;
    let same_key = key("a");
    let of_scope =
        |scope: &'static str, name: &str| RecordKey::new(Scope::new(scope).unwrap(), key(name).key().clone());
    for (key, verdict) in [
        (key("b"), Verdict::Completed),
        (of_scope("test.other", "a"), Verdict::Completed),
        // If scope and key were joined without their lengths, the text would be the same as for the record.
        (of_scope("test.seale", "da"), Verdict::Completed),
        (same_key, Verdict::Failed),
    ] {
        let elsewhere = MemoryStore::new();
        recorded(&elsewhere, &key, verdict, &sealed).await;
        let error = refused(&elsewhere.encrypted(ring()), &key).await;
        assert!(error.contains(MOVED), "{error}");
    }
}

#[tokio::test]
async fn a_record_from_before_is_refused_unless_plain_ones_are_accepted() {
    let inner = MemoryStore::new();
    recorded(&inner, &key("a"), Verdict::Completed, SECRET).await;
    let store = inner.clone().encrypted(ring());
    assert!(refused(&store, &key("a")).await.contains("is not encrypted"));
    let store = store.accept_plain();
    assert_eq!(replayed(&store, &key("a")).await.1, value(SECRET));
    // An envelope of an unknown version does not count as a plain result.
    let later = [0xab, b'i', b'd', 2, 7, 7, 7, 7];
    recorded(&inner, &key("later"), Verdict::Completed, &later).await;
    for store in [store.clone(), inner.clone().encrypted(ring())] {
        assert!(refused(&store, &key("later")).await.contains("later version"));
    }
    // An encrypted result is still checked.
    recorded(&store, &key("b"), Verdict::Completed, SECRET).await;
    assert_eq!(replayed(&store, &key("b")).await.1, value(SECRET));
}

#[tokio::test]
async fn steps_that_are_moved_renamed_or_given_other_inputs_are_found() {
    let inner = MemoryStore::new();
    let store = inner.clone().encrypted(ring());
    let request = claim();
    let grant = granted(&store, &key("a"), &request).await;
    let record = |position, step| RecordStep::new(request.owner, grant.fence, position, step);
    store.record_step(&key("a"), &record(0, step("reserve", SECRET))).await.unwrap();
    let sealed = inner.get(&key("a")).await.unwrap().unwrap().steps.remove(0);

    let renamed = sealed.clone().with_name("refund".into());
    let reused = sealed.clone().with_input(Some(Fingerprint::from_bytes([9; 32])));
    let without = sealed.clone().with_input(None);
    for (before, planted) in [(0, renamed), (0, reused), (0, without), (1, sealed)] {
        let inner = MemoryStore::new();
        let grant = granted(&inner, &key("a"), &request).await;
        let record = |position, step| RecordStep::new(request.owner, grant.fence, position, step);
        let store = inner.clone().encrypted(ring());
        for position in 0..before {
            store.record_step(&key("a"), &record(position, step("before", b"1"))).await.unwrap();
        }
        inner.record_step(&key("a"), &record(before, planted)).await.unwrap();
        let error = why(&store.get(&key("a")).await.unwrap_err());
        assert!(error.contains(MOVED), "{error}");
    }
}

#[test]
fn no_key_and_no_result_is_in_a_debug_output() {
    let (inner, ring) = (MemoryStore::new(), KeyRing::new(77, &[0xc4; 32]));
    let text = format!("{ring:?}").to_lowercase();
    assert!(!text.contains("196") && !text.contains("c4"), "{text}");
    assert_eq!(format!("{:?}", inner.clone().encrypted(ring)), "Encrypted(MemoryStore { .. })");
    assert_eq!(format!("{:?}", inner.clone().digest_keys(&[0xc4; 32])), "DigestedKeys(MemoryStore { .. })");
    assert_eq!(format!("{:?}", inner.cached(10)), "Cached(MemoryStore { .. })");
}

#[tokio::test]
async fn an_operation_that_fails_open_does_not_run_what_cannot_be_decrypted() {
    let inner = MemoryStore::new();
    let operation = Operation::new("test.sealed").fail_open();
    let store = inner.clone().encrypted(ring());
    assert_eq!(operation.run(&store, "a", || async { Ok::<_, Error>(7) }).await.unwrap(), 7);
    let store = inner.encrypted(KeyRing::new(3, &[3; 32])).without_mark();
    let again = operation.run(&store, "a", || async { panic!("it ran again") });
    let error: Error = again.await.map(|never: i32| never).unwrap_err();
    assert!(matches!(error, Error::Store { .. }), "{error}");
}
