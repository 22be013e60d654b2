//! Tests of compressed results.

use idem::StoreExt as _;
use idem::protocol::Verdict;
use idem::{MemoryStore, Store, StoreErrorKind};

use crate::sealed_support::{key, recorded, stored};

const FRAME: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

async fn record(store: &impl Store, result: &[u8]) {
    recorded(store, &key("a"), Verdict::Completed, result).await;
}

#[tokio::test]
async fn every_result_comes_back_as_it_was() {
    for result in [
        Vec::new(),
        b"short".repeat(200),
        FRAME.to_vec(),
        [&FRAME[..], b"no frame"].concat(),
        [&FRAME[..], &b"no frame".repeat(200)].concat(),
    ] {
        let store = MemoryStore::new().compressed();
        record(&store, &result).await;
        assert_eq!(stored(&store, &key("a")).await, result);
    }
}

#[tokio::test]
async fn a_short_result_stays_readable_as_it_is() {
    let inner = MemoryStore::new();
    record(&inner.clone().compressed(), b"{\"receipt\":7}").await;
    assert_eq!(&stored(&inner, &key("a")).await[..], b"{\"receipt\":7}");
}

#[tokio::test]
async fn results_from_before_stay_readable() {
    let inner = MemoryStore::new();
    record(&inner, &[b'b'; 10_000]).await;
    assert_eq!(stored(&inner.compressed(), &key("a")).await, &[b'b'; 10_000][..]);
}

#[tokio::test]
async fn what_the_store_takes_is_counted_after_compression() {
    let inner = MemoryStore::with_max_result_bytes(1_000);
    let store = inner.compressed();
    record(&store, &vec![b'c'; 1_000_000]).await;
    assert_eq!(stored(&store, &key("a")).await.len(), 1_000_000);
}

#[tokio::test]
async fn a_frame_that_is_broken_or_too_large_is_an_error_that_takes_no_memory() {
    let inner = MemoryStore::new();
    record(&inner.clone().compressed(), &vec![0; 10_000_000]).await;
    let error = inner.clone().compressed_up_to(1_000).get(&key("a")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::CorruptRecord, "{error}");

    let inner = MemoryStore::new();
    record(&inner, &[&FRAME[..], b"no frame"].concat()).await;
    assert_eq!(inner.compressed().get(&key("a")).await.unwrap_err().kind(), StoreErrorKind::CorruptRecord);
}
