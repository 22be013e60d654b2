use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::*;
use idem_core::StoreErrorKind;
use idem_core::protocol::{Claim, Owner};
use idem_core::{Key, Scope};
use idem_runtime::MemoryStore;

fn key(name: &str) -> RecordKey {
    RecordKey::new(Scope::new("fault").unwrap(), Key::new(name).unwrap())
}

fn request() -> Claim {
    let minute = Duration::from_secs(60);
    Claim::new(Owner::random(), minute, minute)
}

fn memory() -> FaultStore<MemoryStore> {
    FaultStore::new(MemoryStore::new())
}

#[tokio::test]
async fn a_failure_before_leaves_the_wrapped_store_alone() {
    let store = memory();
    store.next(OperationKind::Claim, Fault::FailBefore);
    let error = store.claim(&key("a"), &request()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(store.inner().is_empty());
    assert_eq!((store.asked(OperationKind::Claim), store.applied(OperationKind::Claim)), (1, 0));
    assert!(store.claim(&key("a"), &request()).await.is_ok());
}

#[tokio::test]
async fn a_failure_after_is_applied_and_its_answer_lost() {
    let store = memory();
    store.next(OperationKind::Claim, Fault::FailAfter);
    let error = store.claim(&key("a"), &request()).await.unwrap_err();
    assert!(error.is_outcome_unknown());
    assert_eq!(store.inner().len(), 1);
    assert_eq!(store.applied(OperationKind::Claim), 1);
}

#[tokio::test(start_paused = true)]
async fn an_operation_whose_answer_was_lost_can_still_arrive() {
    let store = memory();
    let late = Duration::from_secs(5);
    store.next(OperationKind::Claim, Fault::FailThenApply(late));
    assert!(store.claim(&key("a"), &request()).await.unwrap_err().is_outcome_unknown());
    assert!(store.inner().is_empty());
    tokio::time::sleep(late * 2).await;
    assert_eq!(store.inner().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn delays_are_before_or_after_the_operation() {
    let late = Duration::from_secs(5);
    for (fault, applied_by_then) in [(Fault::DelayBefore(late), 0), (Fault::DelayAfter(late), 1)] {
        let store = memory();
        let started = Instant::now();
        store.next(OperationKind::Claim, fault);
        let (key, request) = (key("a"), request());
        let mut claim = Box::pin(store.claim(&key, &request));
        assert!(timeout(late / 2, &mut claim).await.is_err());
        assert_eq!(store.inner().len(), applied_by_then);
        assert!(claim.await.is_ok());
        assert_eq!(started.elapsed(), late);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hanging_operation_never_answers() {
    let day = Duration::from_secs(24 * 60 * 60);
    for (fault, applied) in [(Fault::HangBefore, 0), (Fault::HangAfter, 1)] {
        let store = memory();
        store.next(OperationKind::Claim, fault);
        assert!(timeout(day, store.claim(&key("a"), &request())).await.is_err());
        assert_eq!(store.inner().len(), applied);
    }
}

#[tokio::test]
async fn what_is_in_line_comes_before_being_down_and_that_before_always() {
    let store = memory();
    store.always(OperationKind::Get, Fault::FailAfter);
    store.down(true);
    store.next(OperationKind::Get, None);
    let mut seen = Vec::new();
    for up in [false, false, true] {
        if up {
            store.down(false);
        }
        seen.push(store.get(&key("a")).await.err().map(|error| error.kind()));
    }
    assert_eq!(seen, [None, Some(StoreErrorKind::Unavailable), Some(StoreErrorKind::OutcomeUnknown)]);
    store.always(OperationKind::Get, None);
    assert!(store.get(&key("a")).await.is_ok());
}

/// The faults of the first operations of a kind.
async fn faults(seed: u64, rates: Rates, between: bool) -> Vec<Option<StoreErrorKind>> {
    let store = FaultStore::seeded(MemoryStore::new(), seed, rates);
    let mut seen = Vec::new();
    for _ in 0..400 {
        if between {
            let _ = store.purge(1).await;
        }
        seen.push(store.get(&key("a")).await.err().map(|error| error.kind()));
    }
    seen
}

#[tokio::test]
async fn a_seed_gives_the_same_faults_whatever_is_asked_in_between() {
    let rates = Rates::none().fail_before(0.2).fail_after(0.1);
    let once = faults(7, rates, false).await;
    let often = |kind| once.iter().filter(|fault| **fault == Some(kind)).count();
    // Of 400, with standard deviations of 8 and 6.
    assert!((48..112).contains(&often(StoreErrorKind::Unavailable)), "{once:?}");
    assert!((16..64).contains(&often(StoreErrorKind::OutcomeUnknown)), "{once:?}");
    assert_eq!(once, faults(7, rates, true).await);
    assert_ne!(once, faults(8, rates, false).await);
}
