//! Tests of relaxed claims on a store that waits for replicas: which operations wait.

use std::time::Duration;

use idem_runtime::protocol::{Claim, ClaimAnswer, CompleteAnswer, Durability};
use idem_runtime::{Store, StoreErrorKind};
use idem_test_servers::Redis;

use crate::support::{claim_request, completion, hasty, key};

fn relaxed() -> Claim {
    claim_request().with_durability(Durability::Relaxed)
}

#[tokio::test]
async fn only_the_first_grant_of_a_relaxed_claim_does_not_wait_for_replicas() {
    // It has none.
    let redis = Redis::start();
    let store = hasty(&redis.url()).wait_replicas(1, Duration::from_millis(100)).connect().await.unwrap();
    let request = relaxed();
    let granted = store.claim(&key("a"), &request).await.unwrap();
    let ClaimAnswer::Granted(grant) = granted else { panic!("{granted:?}") };
    let error = store.claim(&key("b"), &claim_request()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{error:?}");
    let result = completion(request.owner, grant.fence, b"r");
    assert!(store.complete(&key("a"), &result).await.unwrap_err().is_outcome_unknown());
    // The result is on the server, but on no replica.
    assert!(store.claim(&key("a"), &relaxed()).await.unwrap_err().is_outcome_unknown());
    let alone = hasty(&redis.url()).connect().await.unwrap();
    assert_eq!(alone.complete(&key("a"), &result).await.unwrap(), CompleteAnswer::Done);
}

#[tokio::test]
async fn a_relaxed_takeover_waits_for_replicas() {
    let redis = Redis::start();
    let store = hasty(&redis.url()).wait_replicas(1, Duration::from_millis(100)).connect().await.unwrap();
    let lapsing = relaxed().with_lease(Duration::from_millis(1));
    store.claim(&key("a"), &lapsing).await.unwrap();
    let alone = hasty(&redis.url()).connect().await.unwrap();
    let request = relaxed();
    // Until the lease is over, the key is busy, and that waits, too.
    while alone.get(&key("a")).await.unwrap().unwrap().attempt == 1 {
        assert!(store.claim(&key("a"), &request).await.unwrap_err().is_outcome_unknown());
    }
    assert_eq!(alone.get(&key("a")).await.unwrap().unwrap().owner, request.owner);
}
