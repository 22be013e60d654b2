//! The requests of a caller in the tests of a store. The tests of several stores include this file.

#![allow(dead_code, reason = "each store uses some of it")]

use std::time::Duration;

use bytes::Bytes;
use idem_core::protocol::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Grant, Owner, RecordStep, RecordStepAnswer,
    RecordedStep, Release, ReleaseAnswer, ReleaseCause, Renew, RenewAnswer, StoredResult, Verdict,
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

/// A claim with a lease and a ttl of a millisecond.
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
    finish(store, key, owner, grant.fence, result).await;
}

/// Completes a claim that is held.
pub(crate) async fn finish(store: &impl Store, key: &RecordKey, owner: Owner, fence: Fence, result: &[u8]) {
    let done = store.complete(key, &completion(owner, fence, result)).await.unwrap();
    assert_eq!(done, CompleteAnswer::Done);
}

/// Renews a claim that is held.
pub(crate) async fn renew(store: &impl Store, key: &RecordKey, owner: Owner, fence: Fence) {
    assert_eq!(store.renew(key, &renewal(owner, fence)).await.unwrap(), RenewAnswer::Held);
}

/// Records a step of a claim that is held.
pub(crate) async fn record_step(store: &impl Store, key: &RecordKey, step: &RecordStep) {
    assert_eq!(store.record_step(key, step).await.unwrap(), RecordStepAnswer::Recorded);
}

/// Releases a claim that is held, as after a body that failed.
pub(crate) async fn release(store: &impl Store, key: &RecordKey, owner: Owner, fence: Fence) {
    let request = Release::new(owner, fence, ReleaseCause::Failed);
    assert_eq!(store.release(key, &request).await.unwrap(), ReleaseAnswer::Released);
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
