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

#[tokio::test(start_paused = true)]
async fn a_failure_is_before_or_after_the_operation_or_long_before_it() {
    let late = Duration::from_secs(5);
    for (fault, kind, applied_by_then, applied) in [
        (Fault::FailBefore, StoreErrorKind::Unavailable, 0, 0),
        (Fault::FailAfter, StoreErrorKind::OutcomeUnknown, 1, 1),
        (Fault::FailThenApply(late), StoreErrorKind::OutcomeUnknown, 0, 1),
    ] {
        let store = memory();
        store.next(OperationKind::Claim, fault);
        let error = store.claim(&key("a"), &request()).await.unwrap_err();
        assert_eq!((error.kind(), store.inner().len()), (kind, applied_by_then), "{fault:?}");
        tokio::time::sleep(late * 2).await;
        assert_eq!(store.inner().len(), applied, "{fault:?}");
        let counts = (store.asked(OperationKind::Claim), store.applied(OperationKind::Claim));
        assert_eq!(counts, (1, applied as u64), "{fault:?}");
        assert!(store.claim(&key("b"), &request()).await.is_ok(), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_operation_is_answered_late_and_a_hanging_one_never() {
    let late = Duration::from_secs(5);
    for (fault, applied_by_then, answers) in [
        (Fault::DelayBefore(late), 0, true),
        (Fault::DelayAfter(late), 1, true),
        (Fault::HangBefore, 0, false),
        (Fault::HangAfter, 1, false),
    ] {
        let (store, started) = (memory(), Instant::now());
        store.next(OperationKind::Claim, fault);
        let (key, request) = (key("a"), request());
        let mut claim = Box::pin(store.claim(&key, &request));
        assert!(timeout(late / 2, &mut claim).await.is_err(), "{fault:?}");
        assert_eq!(store.inner().len(), applied_by_then, "{fault:?}");
        assert_eq!(timeout(late * 1_000, claim).await.is_ok(), answers, "{fault:?}");
        assert_eq!(started.elapsed() == late, answers, "{fault:?}");
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

/// The faults of 400 operations of one kind. With `between`, other operations come in between.
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
    // Of the 400 operations, about 80 are not applied, and about 40 are applied but lose their answer. The
    // standard deviations are 8 and 6.
    assert!((48..112).contains(&often(StoreErrorKind::Unavailable)), "{once:?}");
    assert!((16..64).contains(&often(StoreErrorKind::OutcomeUnknown)), "{once:?}");
    assert_eq!(once, faults(7, rates, true).await);
    assert_ne!(once, faults(8, rates, false).await);
}
