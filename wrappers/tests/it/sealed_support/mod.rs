//! Helpers for the tests of encrypted results, digested keys and cached replays.
#![allow(dead_code, clippy::unwrap_used, reason = "each test uses some of it")]

#[path = "../../../../stores/kit/tests/requests/mod.rs"]
mod requests;

use bytes::Bytes;
use idem::KeyRing;
use idem::protocol::{Claim, ClaimAnswer, Complete, CompleteAnswer, RecordedStep, StoredResult, Verdict};
use idem::{Fingerprint, Key, RecordKey, Scope, Store};
pub(crate) use requests::{claim_request as claim, granted_as as granted};

pub(crate) fn key(text: &str) -> RecordKey {
    RecordKey::new(Scope::new("test.sealed").unwrap(), Key::new(text).unwrap())
}

pub(crate) fn ring() -> KeyRing {
    KeyRing::new(1, &[0x5a; 32])
}

pub(crate) fn value(bytes: &[u8]) -> StoredResult {
    StoredResult::Value(Bytes::copy_from_slice(bytes))
}

pub(crate) fn step(name: &str, result: &[u8]) -> RecordedStep {
    RecordedStep::new(name.into(), Some(Fingerprint::from_bytes([3; 32])), value(result))
}

/// Claims the key and records this result.
pub(crate) async fn recorded(store: &impl Store, key: &RecordKey, verdict: Verdict, result: &[u8]) {
    recorded_as(store, key, &claim(), verdict, result).await;
}

pub(crate) async fn recorded_as(
    store: &impl Store,
    key: &RecordKey,
    request: &Claim,
    verdict: Verdict,
    result: &[u8],
) {
    let grant = granted(store, key, request).await;
    let complete = Complete::new(request.owner, grant.fence, verdict, value(result), request.ttl);
    assert_eq!(store.complete(key, &complete).await.unwrap(), CompleteAnswer::Done);
}

/// The result that a duplicate gets.
pub(crate) async fn replayed(store: &impl Store, key: &RecordKey) -> (Verdict, StoredResult) {
    match store.claim(key, &claim()).await.unwrap() {
        ClaimAnswer::Replay(replay) => (replay.verdict, replay.result),
        other => panic!("{other:?}"),
    }
}

/// The bytes of the recorded result, as this store returns them.
pub(crate) async fn stored(store: &impl Store, key: &RecordKey) -> Bytes {
    match store.get(key).await.unwrap().unwrap().result {
        Some(StoredResult::Value(bytes)) => bytes,
        other => panic!("{other:?}"),
    }
}
