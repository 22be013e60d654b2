//! Tests of digested keys and fingerprints.

use crate::sealed_support;

use std::time::Duration;

use idem::StoreExt as _;
use idem::listing::{List, Page};
use idem::protocol::{Claim, ClaimAnswer, Complete, Verdict};
use idem::{Error, Fingerprint, MemoryStore, Operation, Store};
use sealed_support::{claim, granted, key, recorded_as, value};

const SECRET: [u8; 32] = [0x21; 32];

fn red() -> Claim {
    claim().with_fingerprint(Some(Fingerprint::from_bytes([1; 32])))
}

#[tokio::test]
async fn a_fingerprint_is_compared_but_not_stored_and_comes_back() {
    let inner = MemoryStore::new();
    let store = inner.clone().digest_keys(&SECRET).without_mark();
    recorded_as(&store, &key("a"), &red(), Verdict::Completed, b"1").await;
    recorded_as(&store, &key("b"), &red(), Verdict::Completed, b"1").await;

    let hidden = |walked: Page| {
        walked.records.into_iter().map(|listed| listed.record.fingerprint.unwrap()).collect::<Vec<_>>()
    };
    let stored = hidden(inner.list(&List::default()).await.unwrap());
    let print = red().fingerprint.unwrap();
    assert!(stored[0] != stored[1] && !stored.contains(&print), "it can be told or compared: {stored:?}");
    let half = |print: &Fingerprint, at: usize| print.as_bytes()[at..at + 16].to_vec();
    assert!(half(&stored[0], 0) != half(&print, 0) && half(&stored[0], 16) != half(&print, 16));

    assert_eq!(store.get(&key("a")).await.unwrap().unwrap().fingerprint, Some(print));
    assert_eq!(hidden(store.list(&List::default()).await.unwrap()), [print, print]);
    let blue = claim().with_fingerprint(Some(Fingerprint::from_bytes([2; 32])));
    assert_eq!(store.claim(&key("a"), &blue).await.unwrap(), ClaimAnswer::Mismatch);
    assert!(matches!(store.claim(&key("a"), &red()).await.unwrap(), ClaimAnswer::Replay(_)));
}

/// A key and its digest name two records, so a caller that waits for one record must not get the result of
/// the other.
#[tokio::test(start_paused = true)]
async fn who_waits_for_a_digested_key_is_not_given_the_result_of_the_plain_one() {
    let inner = MemoryStore::new();
    let store = inner.clone().digest_keys(&SECRET);
    let held = red();
    let grant = granted(&inner, &key("a"), &held).await;
    granted(&store, &key("a"), &claim()).await;
    let operation = Operation::new("test.sealed").wait(Duration::from_secs(5));
    let both = tokio::join!(
        operation.run(&inner, "a", || async { Ok::<_, Error>(1) }),
        operation.run(&store, "a", || async { Ok::<_, Error>(2) }),
        async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let complete = Complete::new(held.owner, grant.fence, Verdict::Completed, value(b"7"), held.ttl);
            inner.complete(&key("a"), &complete).await.unwrap();
        }
    );
    assert_eq!(both.0.unwrap(), 7);
    assert!(matches!(both.1, Err(Error::InFlight { .. })), "{:?}", both.1);
}
