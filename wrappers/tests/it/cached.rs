//! Tests of recorded results that are replayed from this process's memory.

use crate::sealed_support;

use std::time::Duration;

use futures_util::future::join_all;
use idem::StoreExt as _;
use idem::protocol::{Claim, ClaimAnswer, Verdict};
use idem::{Cached, Caching, Fingerprint, MemoryStore, RecordKey, Store};
use idem_testing::{Fault, FaultStore, OperationKind};
use sealed_support::{claim, key, recorded, recorded_as, replayed, value};
use tokio::time::{advance, sleep};

const SECOND: Duration = Duration::from_secs(1);

type Watched = FaultStore<MemoryStore>;

fn watched(caching: impl Into<Caching>) -> (Watched, Cached<Watched>) {
    let store = FaultStore::new(MemoryStore::new());
    (store.clone(), store.cached(caching))
}

fn claims(store: &Watched) -> u64 {
    store.asked(OperationKind::Claim)
}

/// A claim's answer, and whether the claim went to the store.
async fn asked(watched: &Watched, store: &impl Store, request: &Claim) -> (ClaimAnswer, bool) {
    let before = claims(watched);
    let answer = store.claim(&key("a"), request).await.unwrap();
    (answer, claims(watched) > before)
}

async fn is_hit(watched: &Watched, store: &impl Store) -> bool {
    let (answer, asked) = asked(watched, store, &claim()).await;
    assert!(matches!(answer, ClaimAnswer::Replay(_)), "{answer:?}");
    !asked
}

fn with_print(byte: u8) -> Claim {
    claim().with_fingerprint(Some(Fingerprint::from_bytes([byte; 32])))
}

#[tokio::test(start_paused = true)]
async fn the_second_replay_is_the_first_one_and_costs_the_store_nothing() {
    let (inner, store) = watched(100);
    recorded(&store, &key("a"), Verdict::Failed, b"declined").await;
    let (first, went) = asked(&inner, &store, &claim()).await;
    assert!(went);
    for _ in 0..3 {
        let (again, went) = asked(&inner, &store.clone(), &claim()).await;
        assert_eq!((&again, went), (&first, false));
    }
}

#[tokio::test(start_paused = true)]
async fn the_store_is_asked_again_after_the_bound() {
    for (caching, bound) in
        [(Caching::entries(10), SECOND * 5), (Caching::entries(10).ask_again_after(SECOND), SECOND)]
    {
        let (inner, store) = watched(caching);
        recorded(&store, &key("a"), Verdict::Completed, b"1").await;
        assert!(!is_hit(&inner, &store).await);
        advance(bound - Duration::from_millis(1)).await;
        assert!(is_hit(&inner, &store).await);
        // A hit does not extend the time for which a result is cached.
        advance(Duration::from_millis(1)).await;
        assert!(!is_hit(&inner, &store).await);
        assert!(is_hit(&inner, &store).await);
    }
    let (inner, store) = watched(Caching::entries(10).ask_again_after(Duration::ZERO));
    recorded(&store, &key("a"), Verdict::Completed, b"1").await;
    for _ in 0..3 {
        assert!(!is_hit(&inner, &store).await, "without a bound nothing is cached");
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_is_replayed_after_its_end_for_no_longer_than_it_is_kept() {
    let (inner, store) = watched(10);
    let short_lived = claim().with_ttl(SECOND * 2);
    recorded_as(&store, &key("a"), &short_lived, Verdict::Completed, b"1").await;
    advance(SECOND).await;
    assert!(!is_hit(&inner, &store).await);
    advance(Duration::from_millis(1_999)).await;
    assert!(is_hit(&inner, &store).await);
    advance(Duration::from_millis(1)).await;
    assert!(matches!(asked(&inner, &store, &claim()).await.0, ClaimAnswer::Granted(_)));
}

#[tokio::test(start_paused = true)]
async fn an_answer_on_its_way_while_the_key_is_forgotten_is_not_kept() {
    for (operation, fault, asking, forgetting) in [
        // The claim is applied at once and answered late, so the answer has the old result.
        (OperationKind::Claim, Fault::DelayAfter(SECOND), Duration::ZERO, SECOND / 2),
        // The claim is answered before the record is deleted.
        (OperationKind::Forget, Fault::DelayBefore(SECOND), SECOND / 2, Duration::ZERO),
    ] {
        let ((inner, store), a) = (watched(10), key("a"));
        recorded(&store, &a, Verdict::Completed, b"1").await;
        inner.next(operation, fault);
        let old = async {
            sleep(asking).await;
            replayed(&store, &a).await.1
        };
        let forgotten = async {
            sleep(forgetting).await;
            store.forget(&a).await.unwrap()
        };
        assert_eq!(tokio::join!(old, forgotten), (value(b"1"), true), "{operation:?}");
        let again = store.claim(&a, &claim()).await.unwrap();
        assert!(matches!(again, ClaimAnswer::Granted(_)), "{operation:?}: {again:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_of_before_is_not_kept_over_one_of_after() {
    let ((inner, store), a) = (watched(10), key("a"));
    recorded(&store, &key("a"), Verdict::Completed, b"1").await;
    inner.next(OperationKind::Claim, Fault::DelayAfter(SECOND));
    let (old, ()) = tokio::join!(replayed(&store, &a), async {
        sleep(SECOND / 2).await;
        // Before the first answer arrives, another process forgets the key, and this process runs the call
        // again.
        inner.inner().forget(&key("a")).await.unwrap();
        recorded(&store, &key("a"), Verdict::Completed, b"2").await;
    });
    assert_eq!(old.1, value(b"1"), "it was asked before");
    assert_eq!(replayed(&store, &key("a")).await.1, value(b"2"));
}

#[tokio::test(start_paused = true)]
async fn a_forget_that_failed_or_whose_asker_went_away_leaves_nothing_kept() {
    let (inner, store) = watched(10);
    recorded(&store, &key("a"), Verdict::Completed, b"1").await;
    assert!(!is_hit(&inner, &store).await);
    inner.next(OperationKind::Forget, Fault::FailAfter);
    store.forget(&key("a")).await.unwrap_err();
    assert!(matches!(asked(&inner, &store, &claim()).await.0, ClaimAnswer::Granted(_)));

    recorded(&store, &key("b"), Verdict::Completed, b"1").await;
    replayed(&store, &key("b")).await;
    inner.next(OperationKind::Forget, Fault::HangAfter);
    assert!(tokio::time::timeout(SECOND, store.forget(&key("b"))).await.is_err());
    assert_eq!(kept(&inner, &store, &[key("b")]).await, 0);
}

#[tokio::test(start_paused = true)]
async fn another_fingerprint_is_told_by_the_store() {
    let (inner, store) = watched(10);
    recorded_as(&store, &key("a"), &with_print(1), Verdict::Completed, b"1").await;
    let (first, _) = asked(&inner, &store, &with_print(1)).await;
    assert_eq!(asked(&inner, &store, &with_print(1)).await, (first.clone(), false));
    assert_eq!(asked(&inner, &store, &claim()).await, (first.clone(), false), "none matches any");
    assert_eq!(asked(&inner, &store, &with_print(2)).await, (ClaimAnswer::Mismatch, true));
    assert_eq!(asked(&inner, &store, &with_print(1)).await, (first, false));
}

/// How many of these keys have a cached result: the number of claims that are answered while the store is
/// down.
async fn kept(watched: &Watched, store: &impl Store, keys: &[RecordKey]) -> usize {
    watched.down(true);
    let answers = join_all(keys.iter().map(|key| async move { store.claim(key, &claim()).await })).await;
    watched.down(false);
    answers.iter().filter(|answer| matches!(answer, Ok(ClaimAnswer::Replay(_)))).count()
}

/// How many of `count` results, each of `bytes` bytes, the cache keeps.
async fn kept_of(caching: Caching, count: usize, bytes: usize) -> usize {
    let (inner, store) = watched(caching);
    let keys: Vec<_> = (0..count).map(|number| key(&number.to_string())).collect();
    for key in &keys {
        recorded(&store, key, Verdict::Completed, &vec![b'1'; bytes]).await;
        replayed(&store, key).await;
    }
    kept(&inner, &store, &keys).await
}

#[tokio::test(start_paused = true)]
async fn no_more_entries_and_no_more_bytes_are_kept_than_allowed() {
    for entries in [1, 7, 100] {
        let kept = kept_of(Caching::entries(entries), 500, 1).await;
        assert!(kept <= entries && kept * 10 >= entries * 8, "{kept} of {entries}");
    }
    let some = kept_of(Caching::entries(1_000).max_bytes(110_000), 50, 10_000).await;
    assert!((5..=10).contains(&some), "{some}");
    // This result would not fit if the cache split its bytes into several shards.
    assert_eq!(kept_of(Caching::entries(1_000).max_bytes(11_000), 1, 10_000).await, 1);
    assert_eq!(kept_of(Caching::entries(0), 9, 1).await, 0);
    assert_eq!(kept_of(Caching::entries(10).max_bytes(0), 9, 1).await, 0);
    // A result that is larger than the whole cache.
    assert_eq!(kept_of(Caching::entries(10).max_bytes(5_000), 3, 10_000).await, 0);
}
