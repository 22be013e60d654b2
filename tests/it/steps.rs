//! Tests of steps: what a step records, what a rerun gets, and when a step is refused. Here is what is recorded and given
//! again, and the helpers.

mod lost_claims;
mod names;
mod outages;
mod unfinished;

use crate::support;

use std::pin::pin;
use std::time::Duration;

use futures_util::future::select;
use idem::protocol::State;
use idem::testing::{Fault, FaultStore, OperationKind};
use idem::{Error, MemoryStore, NotStored, Step, StepError, Store};
use support::{Failure, LEASE, Runs, operation, record_key};
use tokio::sync::Notify;
use tokio::time::Instant;

fn faulty() -> FaultStore<MemoryStore> {
    FaultStore::new(MemoryStore::new())
}

/// The names of the recorded steps.
async fn recorded(store: &impl Store) -> Vec<String> {
    let record = store.get(&record_key("k")).await.unwrap();
    record.into_iter().flat_map(|record| record.steps).map(|step| step.name).collect()
}

async fn state(store: &impl Store) -> Option<State> {
    store.get(&record_key("k")).await.unwrap().map(|record| record.state)
}

/// A step that counts its runs.
async fn counted(name: &str, runs: &Runs) -> Result<usize, Failure> {
    idem::step(name, || async { Ok(runs.run()) }).await
}

/// Why a step gave no value.
fn reason(failure: Failure) -> StepError {
    match failure {
        Failure::Idem(Error::Step { source, .. }) => source,
        other => panic!("{other:?}"),
    }
}

/// Runs a call up to `point`, where its worker stops for good, and lets its lease run out.
async fn killed_at(point: &Notify, call: impl Future<Output = Result<usize, Failure>>) {
    let mut call = Box::pin(call);
    assert!(matches!(
        select(call.as_mut(), pin!(point.notified())).await,
        futures_util::future::Either::Right(_)
    ));
    std::mem::forget(call);
    tokio::time::advance(LEASE).await;
}

#[tokio::test(start_paused = true)]
async fn a_rerun_after_a_crash_is_given_what_was_recorded_and_runs_the_rest() {
    let (store, point) = (MemoryStore::new(), Notify::new());
    let (reserved, charged) = (Runs::default(), Runs::default());
    let body = |dies: bool| {
        let (reserved, charged, point) = (&reserved, &charged, &point);
        async move {
            let place = counted("reserve", reserved).await?;
            if dies {
                point.notify_one();
                std::future::pending::<()>().await;
            }
            Ok::<_, Failure>(place + 10 * counted("charge", charged).await?)
        }
    };
    killed_at(&point, operation().run(&store, "k", || body(true))).await;
    assert_eq!(recorded(&store).await, ["reserve"]);
    assert_eq!(operation().run(&store, "k", || body(false)).await.unwrap(), 11);
    assert_eq!((reserved.count(), charged.count()), (1, 1));
    assert_eq!(recorded(&store).await, [""; 0], "the result needs the room");
    assert_eq!(operation().run(&store, "k", || body(false)).await.unwrap(), 11);
}

#[tokio::test]
async fn a_rerun_after_an_error_and_after_a_panic_is_given_what_was_recorded() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let failing = || async {
        counted("a", &runs).await?;
        Err::<usize, _>(Failure::Transient)
    };
    operation().run(&store, "k", failing).await.unwrap_err();
    let panicking = || async {
        counted("a", &runs).await?;
        counted("b", &runs).await?;
        if runs.count() == 2 {
            panic!("a bug");
        }
        Ok::<usize, Failure>(0)
    };
    let panicked = std::panic::AssertUnwindSafe(operation().run(&store, "k", panicking));
    assert!(futures_util::FutureExt::catch_unwind(panicked).await.is_err());
    let ending = || async { Ok::<_, Failure>(counted("b", &runs).await? + 10 * counted("a", &runs).await?) };
    assert_eq!(operation().run(&store, "k", ending).await.unwrap(), 12, "by name, whatever the order");
    assert_eq!(runs.count(), 2);
}

#[tokio::test]
async fn a_step_that_failed_is_not_recorded_and_may_be_tried_again_at_once() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let call = operation().run(&store, "k", || async {
        let failed = idem::step("a", || async { Err::<usize, _>(Failure::Transient) }).await;
        assert!(matches!(failed, Err(Failure::Transient)));
        assert_eq!(recorded(&store).await, [""; 0]);
        counted("a", &runs).await
    });
    assert_eq!(call.await.unwrap(), 1);
}

#[tokio::test]
async fn the_first_attempt_reads_nothing_and_a_rerun_reads_once() {
    let (store, runs) = (faulty(), Runs::default());
    let body = |ends: bool| {
        let runs = &runs;
        async move {
            counted("a", runs).await?;
            counted("b", runs).await?;
            if ends { Ok(0) } else { Err(Failure::Transient) }
        }
    };
    operation().run(&store, "k", || body(false)).await.unwrap_err();
    assert_eq!((store.asked(OperationKind::Get), store.asked(OperationKind::RecordStep)), (0, 2));
    operation().run(&store, "k", || async { Err::<usize, _>(Failure::Transient) }).await.unwrap_err();
    assert_eq!(store.asked(OperationKind::Get), 0, "a body without steps reads nothing");
    operation().run(&store, "k", || body(true)).await.unwrap();
    assert_eq!((store.asked(OperationKind::Get), store.asked(OperationKind::RecordStep)), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_value_is_given_only_once_the_store_has_acknowledged_its_record() {
    let store = faulty();
    store.next(OperationKind::RecordStep, Fault::FailBefore);
    store.next(OperationKind::RecordStep, Fault::FailAfter);
    store.next(OperationKind::RecordStep, Fault::DelayAfter(Duration::from_secs(3)));
    let began = Instant::now();
    let call = operation().run(&store, "k", || async {
        let value = idem::step("a", || async { Ok::<_, Failure>(7) }).await?;
        assert!(began.elapsed() >= Duration::from_secs(3));
        assert_eq!(recorded(store.inner()).await, ["a"], "once, though it was asked three times");
        Ok::<_, Failure>(value)
    });
    assert_eq!(call.await.unwrap(), 7);
    assert_eq!(store.asked(OperationKind::RecordStep), 3);
}

#[tokio::test]
async fn a_value_that_is_too_large_is_given_once_and_never_made_again() {
    let runs = Runs::default();
    let large = || async {
        runs.run();
        Ok::<_, Failure>("x".repeat(100))
    };
    let store = MemoryStore::with_max_result_bytes(50);
    let body = || async {
        assert_eq!(idem::step("a", large).await?.len(), 100);
        Err::<usize, _>(Failure::Transient)
    };
    operation().run(&store, "k", body).await.unwrap_err();
    let again = reason(operation().run(&store, "k", body).await.unwrap_err());
    assert!(matches!(again, StepError::NotStored(NotStored::TooLarge)), "{again:?}");
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn what_a_step_holds_is_in_no_debug_text() {
    let step = format!("{:?}", Step::new("charge").fingerprint("4711 4711 4711"));
    assert!(step.contains("charge"), "{step}");
    let other = format!("{:?}", Step::new("charge").fingerprint("4712"));
    assert_eq!(step, other);
}
