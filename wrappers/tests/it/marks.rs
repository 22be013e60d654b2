//! Tests of marks: what they say about the layers of a store, and which processes are refused.

use std::time::Duration;

use idem::http::error_response;
use idem::listing::List;
use idem::protocol::{ClaimAnswer, Verdict};
use idem::{
    Error, KeyError, KeyRing, Layers, MemoryStore, Operation, RecordKey, Store, StoreErrorKind, StoreExt as _,
};
use idem_core::RESERVED_SCOPES;
use idem_testing::{Fault, FaultStore, OperationKind};
use tokio::time::Instant;

use crate::sealed_support::{claim, key, recorded, replayed, ring, value};

const SECRET: [u8; 32] = [0x21; 32];

async fn is_refused<S: Store>(store: &S, name: &RecordKey) -> bool {
    match store.claim(name, &claim()).await {
        Err(error) => {
            assert_eq!(error.kind(), StoreErrorKind::WrongKeys, "{error}");
            assert!(error.to_string().contains("check the"), "{error}");
            true
        }
        Ok(answer) => {
            assert!(matches!(answer, ClaimAnswer::Granted(_)), "{answer:?}");
            false
        }
    }
}

#[tokio::test]
async fn another_key_ring_and_another_secret_are_refused_before_anything_is_claimed() {
    let inner = MemoryStore::new();
    recorded(&inner.clone().encrypted(ring()).digest_keys(&SECRET), &key("a"), Verdict::Completed, b"1")
        .await;
    // The first ring has another key under the same number. The second ring has a number that no key of this
    // store has.
    for other in [KeyRing::new(1, &[9; 32]), KeyRing::new(2, &[9; 32])] {
        assert!(is_refused(&inner.clone().encrypted(other).digest_keys(&SECRET), &key("b")).await);
    }
    assert!(is_refused(&inner.clone().encrypted(ring()).digest_keys(&[1; 32]), &key("b")).await);
    let store = inner.clone().encrypted(ring()).digest_keys(&SECRET);
    assert!(!is_refused(&store, &key("b")).await);
    let page = store.list(&List::default()).await.unwrap();
    assert_eq!(page.records.len(), 2, "{page:?}");
    assert!(page.records.iter().all(|listed| !listed.key.scope().is_reserved()));
}

#[tokio::test]
async fn an_operation_that_fails_open_is_refused_too() {
    let inner = MemoryStore::new();
    let operation = Operation::new("test.sealed").fail_open();
    let store = inner.clone().digest_keys(&SECRET);
    assert_eq!(operation.run(&store, "a", || async { Ok::<_, Error>(7) }).await.unwrap(), 7);
    let other = inner.digest_keys(&[1; 32]);
    let again = operation.run(&other, "a", || async { Ok::<_, Error>(8) }).await;
    assert_eq!(error_response(&again.unwrap_err()).status(), 500);
}

#[tokio::test]
async fn a_rotation_is_never_refused_and_each_ring_reads_what_the_one_before_wrote() {
    let inner = MemoryStore::new();
    let (one, two, three) = ([1; 32], [2; 32], [3; 32]);
    let rings = [
        KeyRing::new(1, &one),
        KeyRing::new(1, &one).and_reads(2, &two).unwrap(),
        KeyRing::new(2, &two).and_reads(1, &one).unwrap(),
        KeyRing::new(2, &two),
        KeyRing::new(3, &three).and_reads(2, &two).unwrap(),
    ];
    for (number, ring) in rings.into_iter().enumerate() {
        let store = inner.clone().encrypted(ring);
        recorded(&store, &key(&number.to_string()), Verdict::Completed, b"1").await;
        for number in number.saturating_sub(1)..=number {
            assert_eq!(replayed(&store, &key(&number.to_string())).await.1, value(b"1"));
        }
    }
}

#[tokio::test]
async fn of_two_rings_that_begin_at_once_one_is_refused() {
    for _ in 0..20 {
        let inner = MemoryStore::new();
        let (one, two) = (KeyRing::new(1, &[1; 32]), KeyRing::new(1, &[2; 32]));
        let (one, two) = (inner.clone().encrypted(one), inner.clone().encrypted(two));
        let (a, b) = (key("a"), key("b"));
        let (first, second) = tokio::join!(is_refused(&one, &a), is_refused(&two, &b));
        assert_ne!(first, second);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_refused_until_the_marks_were_compared() {
    let faulty = FaultStore::new(MemoryStore::new());
    recorded(&faulty.clone().digest_keys(&SECRET), &key("a"), Verdict::Completed, b"1").await;
    let (right, other) = (faulty.clone().digest_keys(&SECRET), faulty.clone().digest_keys(&[1; 32]));
    faulty.next(OperationKind::Get, Fault::FailBefore);
    let failed = other.claim(&key("a"), &claim()).await.unwrap_err();
    assert_eq!(failed.kind(), StoreErrorKind::Unavailable, "{failed}");
    tokio::time::advance(Duration::from_secs(1)).await;
    faulty.always(OperationKind::Get, Fault::HangBefore);
    let (begin, before) = (Instant::now(), faulty.asked(OperationKind::Get));
    let (name, request) = (key("a"), claim());
    let calls = futures_util::future::join_all((0..50).map(|_| other.claim(&name, &request))).await;
    assert!(calls.iter().all(|ended| ended.as_ref().is_err_and(|error| !error.is_outcome_unknown())));
    // Of many calls, only one compares the marks.
    assert!(begin.elapsed() <= Duration::from_millis(2_100), "{:?}", begin.elapsed());
    assert_eq!(faulty.asked(OperationKind::Get), before + 1);
    // If a comparison is dropped with its call, the next call repeats it at once.
    tokio::time::advance(Duration::from_secs(1)).await;
    let dropped = tokio::time::timeout(Duration::from_secs(1), other.claim(&name, &request)).await;
    assert!(dropped.is_err());
    faulty.always(OperationKind::Get, None);
    assert!(is_refused(&other, &key("a")).await);
    assert_eq!(replayed(&right, &key("a")).await.1, value(b"1"));
}

#[tokio::test(start_paused = true)]
async fn a_mark_whose_writer_died_is_written_by_the_next() {
    let faulty = FaultStore::new(MemoryStore::new());
    faulty.next(OperationKind::Complete, Fault::FailBefore);
    let died = faulty.clone().encrypted(ring()).claim(&key("a"), &claim()).await.unwrap_err();
    assert_eq!(died.kind(), StoreErrorKind::Unavailable, "{died}");
    let store = faulty.clone().encrypted(ring());
    assert!(!store.is_marked().await.unwrap());
    tokio::time::advance(Duration::from_secs(6)).await;
    recorded(&store, &key("b"), Verdict::Completed, b"1").await;
    assert!(store.is_marked().await.unwrap());
}

#[tokio::test]
async fn the_marks_tell_the_order_and_hold_no_key() {
    let outside = MemoryStore::new();
    recorded(&outside.clone().encrypted(ring()).digest_keys(&SECRET), &key("a"), Verdict::Completed, b"1")
        .await;
    let layers = Layers::of(&outside).await.unwrap();
    assert!(layers.encrypted && layers.digested && !layers.digested_within, "{layers:?}");
    let within = MemoryStore::new();
    recorded(&within.clone().digest_keys(&SECRET).encrypted(ring()), &key("a"), Verdict::Completed, b"1")
        .await;
    let layers = Layers::of(&within).await.unwrap();
    assert!(layers.encrypted && layers.digested && layers.digested_within, "{layers:?}");
    for listed in outside.list(&List::default()).await.unwrap().records {
        if listed.key.scope().is_reserved() {
            let record = outside.get(&listed.key).await.unwrap().unwrap();
            let text = format!("{record:?} {:?}", record.result).to_lowercase();
            assert!(!text.contains("5a5a5a5a") && !text.contains("21212121"), "{text}");
        }
    }
}

#[tokio::test]
async fn no_operation_takes_the_names_of_marks() {
    let store = MemoryStore::new();
    for scope in RESERVED_SCOPES {
        let ended = Operation::new(scope).run(&store, "encrypted", || async { Ok::<_, Error>(1) }).await;
        assert!(matches!(ended, Err(Error::InvalidKey { source: KeyError::ReservedScope, .. })), "{ended:?}");
    }
}
