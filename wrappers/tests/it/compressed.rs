//! Tests of compressed results.

use std::time::Duration;

use bytes::Bytes;
use idem::StoreExt as _;
use idem::protocol::{Claim, ClaimAnswer, Complete, Owner, StoredResult, Verdict};
use idem::{Key, MemoryStore, RecordKey, Scope, Store, StoreErrorKind};
use proptest::prelude::*;

const FRAME: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

fn key() -> RecordKey {
    RecordKey::new(Scope::new("test.compressed").unwrap(), Key::new("a").unwrap())
}

/// Records `result`.
async fn record(store: &impl Store, result: Bytes) {
    let owner = Owner::random();
    let ttl = Duration::from_secs(60);
    let lease = Duration::from_secs(30);
    let claim = Claim::new(owner, lease, ttl);
    let ClaimAnswer::Granted(grant) = store.claim(&key(), &claim).await.unwrap() else { panic!() };
    let result = StoredResult::Value(result);
    let complete = Complete::new(owner, grant.fence, Verdict::Completed, result, ttl);
    store.complete(&key(), &complete).await.unwrap();
}

async fn stored(store: &impl Store) -> Bytes {
    match store.get(&key()).await.unwrap().unwrap().result {
        Some(StoredResult::Value(bytes)) => bytes,
        other => panic!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn every_result_comes_back_as_it_was(
        frame in any::<bool>(),
        bytes in proptest::collection::vec(any::<u8>(), 0..40),
        repeats in 1..200_usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let mut result = if frame { FRAME.to_vec() } else { Vec::new() };
        result.extend(bytes.repeat(repeats));
        let back = runtime.block_on(async {
            let store = MemoryStore::new().compressed();
            record(&store, result.clone().into()).await;
            stored(&store).await
        });
        prop_assert_eq!(&back[..], &result[..]);
    }
}

#[tokio::test]
async fn a_long_result_takes_less_room_and_a_short_one_stays_readable_as_it_is() {
    let inner = MemoryStore::new();
    record(&inner.clone().compressed(), Bytes::from(vec![b'a'; 100_000])).await;
    assert!(stored(&inner).await.len() < 200);
    let inner = MemoryStore::new();
    record(&inner.clone().compressed(), Bytes::from_static(b"{\"receipt\":7}")).await;
    assert_eq!(&stored(&inner).await[..], b"{\"receipt\":7}");
}

#[tokio::test]
async fn results_from_before_stay_readable() {
    let inner = MemoryStore::new();
    record(&inner, Bytes::from(vec![b'b'; 10_000])).await;
    assert_eq!(stored(&inner.compressed()).await, Bytes::from(vec![b'b'; 10_000]));
}

#[tokio::test]
async fn what_the_store_takes_is_counted_after_compression() {
    let inner = MemoryStore::with_max_result_bytes(1_000);
    let store = inner.compressed();
    record(&store, Bytes::from(vec![b'c'; 1_000_000])).await;
    assert_eq!(stored(&store).await.len(), 1_000_000);
}

#[tokio::test]
async fn a_frame_that_is_broken_or_too_large_is_an_error_that_takes_no_memory() {
    let inner = MemoryStore::new();
    record(&inner.clone().compressed(), Bytes::from(vec![0; 10_000_000])).await;
    let error = inner.clone().compressed_up_to(1_000).get(&key()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::CorruptRecord, "{error}");

    let inner = MemoryStore::new();
    record(&inner, [&FRAME[..], b"no frame"].concat().into()).await;
    assert_eq!(inner.compressed().get(&key()).await.unwrap_err().kind(), StoreErrorKind::CorruptRecord);
}

#[tokio::test]
async fn there_need_be_no_limit() {
    let store = MemoryStore::new().compressed_up_to(usize::MAX);
    record(&store, Bytes::from(vec![b'd'; 10_000])).await;
    assert_eq!(stored(&store).await.len(), 10_000);
}
