//! The requests of a caller in the tests of a store. The tests of several stores include it.

#![allow(dead_code, reason = "each store uses some of it")]

use std::time::Duration;

use bytes::Bytes;
use idem_core::protocol::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Grant, Owner, RecordStep, RecordedStep, Renew,
    StoredResult, Verdict,
};
use idem_core::{Key, RecordKey, Scope, Store};

pub(crate) const LEASE: Duration = Duration::from_secs(30);
pub(crate) const TTL: Duration = Duration::from_secs(3_600);

pub(crate) fn key(key: &str) -> RecordKey {
    RecordKey::new(Scope::new("test").unwrap(), Key::new(key).unwrap())
}

/// A claim by a new owner.
pub(crate) fn claim_request() -> Claim {
    Claim::new(Owner::random(), LEASE, TTL)
}

/// A claim whose record expires about as soon as it is made.
pub(crate) fn short_claim() -> Claim {
    let moment = Duration::from_millis(1);
    claim_request().with_lease(moment).with_ttl(moment)
}

pub(crate) fn completion(owner: Owner, fence: Fence, result: &[u8]) -> Complete {
    Complete::new(owner, fence, Verdict::Completed, StoredResult::Value(Bytes::copy_from_slice(result)), TTL)
}

pub(crate) fn renewal(owner: Owner, fence: Fence) -> Renew {
    Renew::new(owner, fence, LEASE)
}

pub(crate) fn recording(owner: Owner, fence: Fence, position: u32, name: &str, result: &[u8]) -> RecordStep {
    let result = StoredResult::Value(Bytes::copy_from_slice(result));
    let step = RecordedStep::new(name.to_owned(), None, result);
    RecordStep::new(owner, fence, position, step)
}

/// Claims a key that is free.
pub(crate) async fn granted_as(store: &impl Store, key: &RecordKey, request: &Claim) -> Grant {
    match store.claim(key, request).await.unwrap() {
        ClaimAnswer::Granted(grant) => grant,
        other => panic!("not granted but {other:?}"),
    }
}

/// Claims a key that is free, as a new owner.
pub(crate) async fn granted(store: &impl Store, key: &RecordKey) -> (Owner, Grant) {
    let request = claim_request();
    (request.owner, granted_as(store, key, &request).await)
}

/// Claims a free key and completes it.
pub(crate) async fn complete(store: &impl Store, key: &RecordKey, result: &[u8]) {
    let (owner, grant) = granted(store, key).await;
    let done = store.complete(key, &completion(owner, grant.fence, result)).await.unwrap();
    assert_eq!(done, CompleteAnswer::Done);
}

/// The recorded result of a key.
pub(crate) async fn replayed(store: &impl Store, key: &RecordKey) -> Vec<u8> {
    match store.claim(key, &claim_request()).await.unwrap() {
        ClaimAnswer::Replay(replay) => match replay.result {
            StoredResult::Value(bytes) => bytes.to_vec(),
            other => panic!("{other:?}"),
        },
        other => panic!("not replayed but {other:?}"),
    }
}
