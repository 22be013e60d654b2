//! Calls whose work is not one future: `Operation::begin`.

use std::time::Duration;

use idem::protocol::{State, StoredResult, Verdict};
use idem::{
    Attempt, Begun, Error, ErrorKind, Interrupted, MemoryStore, OnCrash, Operation, Outcome, Store, drain,
    observe,
};
use idem_testing::{Fault, FaultStore, OperationKind};
use tokio::time::{sleep, timeout};

use crate::alone;
use crate::events::Events;
use crate::support::{Failure, LEASE, operation, record_key, state};

async fn begun<S: Store>(operation: &Operation, store: &S) -> Attempt<S> {
    match operation.begin(store, "k").await.unwrap() {
        Begun::Run(attempt) => attempt,
        Begun::Replay(replay) => panic!("{replay:?}"),
    }
}

async fn replayed<S: Store>(operation: &Operation, store: &S) -> u32 {
    match operation.begin(store, "k").await.unwrap() {
        Begun::Replay(replay) => replay.value().unwrap(),
        Begun::Run(attempt) => panic!("{attempt:?}"),
    }
}

async fn refused<S: Store>(operation: &Operation, store: &S) -> ErrorKind {
    operation.begin(store, "k").await.unwrap_err().kind()
}

#[tokio::test(start_paused = true)]
async fn a_completed_attempt_is_replayed_also_by_an_ordinary_call() {
    let _alone = alone().await;
    let (store, operation) = (MemoryStore::new(), operation());
    let attempt = begun(&operation, &store).await;
    assert_eq!(refused(&operation, &store).await, ErrorKind::InFlight);
    let outcome = attempt.complete(&7).await.unwrap();
    assert!(matches!(outcome, Outcome::Executed { attempt: 1, recovered: false, not_stored: None, .. }));
    assert_eq!(replayed(&operation, &store).await, 7);
    assert_eq!(operation.run(&store, "k", || async { Ok::<_, Failure>(0) }).await.unwrap(), 7);
    let observed = observe(operation.begin(&store, "k")).await;
    let Begun::Replay(replay) = observed.value.unwrap() else { panic!("it is recorded") };
    assert!(replay.outcome().is_replayed() && observed.outcome.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_dropped_or_abandoned_is_a_crash() {
    let _alone = alone().await;
    let (store, rerun) = (MemoryStore::new(), operation());
    drop(begun(&rerun, &store).await);
    assert!(drain(LEASE).await.is_complete());
    let attempt = begun(&rerun, &store).await;
    assert!(attempt.context().recovered());
    assert_eq!(attempt.context().attempt(), 2);
    // The key is released when `abandon` returns.
    attempt.abandon().await;
    let attempt = begun(&rerun, &store).await;
    assert!(attempt.context().recovered());
    attempt.give_back();

    let (store, in_doubt) = (MemoryStore::new(), operation().on_crash(OnCrash::InDoubt));
    drop(begun(&in_doubt, &store).await);
    assert!(drain(LEASE).await.is_complete());
    assert_eq!(state(&store).await, Some(State::InDoubt));
    assert_eq!(refused(&in_doubt, &store).await, ErrorKind::InDoubt);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_given_back_was_never_made() {
    let _alone = alone().await;
    let (store, operation) = (MemoryStore::new(), operation().on_crash(OnCrash::InDoubt).max_attempts(1));
    for _ in 0..3 {
        let attempt = begun(&operation, &store).await;
        assert!(attempt.context().attempt() == 1 && !attempt.context().recovered());
        attempt.give_back();
        assert!(drain(LEASE).await.is_complete());
    }
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_renewed_while_an_attempt_lives_and_no_longer() {
    let _alone = alone().await;
    let (store, operation) = (FaultStore::new(MemoryStore::new()), operation());
    let attempt = begun(&operation, &store).await;
    sleep(10 * LEASE).await;
    assert_eq!(refused(&operation, &store).await, ErrorKind::InFlight);
    attempt.complete(&7).await.unwrap();
    let renewals = store.asked(OperationKind::Renew);
    assert!(renewals >= 25, "{renewals}");
    sleep(10 * LEASE).await;
    assert_eq!(store.asked(OperationKind::Renew), renewals);
    // One renewal finds that the lease is lost. No further renewal is sent, although this store answers at
    // once.
    store.forget(&record_key("k")).await.unwrap();
    let _lost = begun(&operation, &store).await;
    store.forget(&record_key("k")).await.unwrap();
    sleep(LEASE).await;
    assert_eq!(store.asked(OperationKind::Renew), renewals + 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_attempt_is_due_when_it_says() {
    let _alone = alone().await;
    let second = Duration::from_secs(1);
    let (store, operation) = (MemoryStore::new(), operation().retry_after(5 * second));
    assert_eq!(begun(&operation, &store).await.fail(Some(second)).await, second);
    assert_eq!(refused(&operation, &store).await, ErrorKind::NotDue);
    sleep(second).await;
    let attempt = begun(&operation, &store).await;
    assert!(!attempt.context().recovered());
    assert_eq!(attempt.fail(None).await, 5 * second);
    sleep(2 * second).await;
    assert_eq!(refused(&operation, &store).await, ErrorKind::NotDue);
}

/// Returns an attempt whose lease has run out, because its store took no renewals for a while.
async fn lost(store: &FaultStore<MemoryStore>) -> Attempt<FaultStore<MemoryStore>> {
    let attempt = begun(&operation(), store).await;
    store.always(OperationKind::Renew, Fault::FailBefore);
    sleep(2 * LEASE).await;
    store.always(OperationKind::Renew, None);
    attempt
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_another_took_over_gets_its_result_or_learns_that_it_runs() {
    let _alone = alone().await;
    let store = FaultStore::new(MemoryStore::new());
    let first = lost(&store).await;
    let second = begun(&operation(), &store).await;
    assert!(second.context().recovered());
    let Err(Interrupted::Refused(error)) = first.complete(&1).await else { panic!("another has the key") };
    assert!(matches!(error, Error::LeaseLost { .. }), "{error:?}");
    second.complete(&2).await.unwrap();

    let store = FaultStore::new(MemoryStore::new());
    let first = lost(&store).await;
    begun(&operation(), &store).await.complete(&2).await.unwrap();
    let Err(Interrupted::Replay(replay)) = first.complete(&1).await else { panic!("another has a result") };
    assert_eq!(replay.value::<u32>().unwrap(), 2);
    assert_eq!(Error::from(Interrupted::Replay(replay)).kind(), ErrorKind::LeaseLost);
}

#[tokio::test(start_paused = true)]
async fn work_runs_in_the_call_and_ends_with_its_time() {
    let _alone = alone().await;
    let store = MemoryStore::new();
    let attempt = begun(&operation(), &store).await;
    let work =
        async { idem::step("a", || async { Ok::<_, Failure>(idem::context().unwrap().attempt()) }).await };
    let (value, _attempt) = attempt.run(work).await.unwrap();
    assert_eq!(value.unwrap(), 1);
    assert_eq!(store.get(&record_key("k")).await.unwrap().unwrap().steps.len(), 1);

    let (events, _guard) = Events::start();
    let (store, limited) = (MemoryStore::new(), operation().timeout(Duration::from_secs(1)));
    let attempt = begun(&limited, &store).await;
    let timed_out =
        attempt.run(std::future::pending::<()>()).await.map(drop).map_err(Error::from).unwrap_err();
    assert_eq!(timed_out.kind(), ErrorKind::TimedOut);
    assert_eq!(events.only("timed_out")[0], "WARN");
    assert!(begun(&limited, &store).await.context().recovered());
}

#[tokio::test(start_paused = true)]
async fn errors_and_results_in_a_format_of_the_callers_own_are_replayed() {
    let _alone = alone().await;
    let (store, operation) = (MemoryStore::new(), operation());
    begun(&operation, &store).await.complete_error(&Failure::Final).await.unwrap();
    let Begun::Replay(replay) = operation.begin(&store, "k").await.unwrap() else { panic!("it is recorded") };
    assert!(matches!(replay.result::<u32, Failure>(), Ok(Err(Failure::Final))));
    assert_eq!(replay.value::<u32>().unwrap_err().kind(), ErrorKind::Undecodable);

    let store = MemoryStore::new();
    let own = StoredResult::Value(vec![1, 9].into());
    begun(&operation, &store).await.record(Verdict::Completed, own).await.unwrap();
    let Begun::Replay(replay) = operation.begin(&store, "k").await.unwrap() else { panic!("it is recorded") };
    assert_eq!(replay.decode_with(|_, bytes| Ok(bytes[1])).unwrap(), 9);
    assert_eq!(replay.value::<u32>().unwrap_err().kind(), ErrorKind::Undecodable);
}

#[tokio::test(start_paused = true)]
async fn an_unprotected_attempt_runs_and_records_nothing() {
    let _alone = alone().await;
    let store = FaultStore::new(MemoryStore::new());
    store.down(true);
    let attempt = begun(&operation().fail_open(), &store).await;
    assert!(!attempt.context().protected());
    assert!(timeout(LEASE * 10, attempt.context().lease_lost()).await.is_err(), "it has no claim to lose");
    let (value, attempt) = attempt.run(async { 7 }).await.unwrap();
    assert_eq!(attempt.complete(&value).await.unwrap(), Outcome::Unprotected);
    store.down(false);
    assert_eq!(state(&store).await, None);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_is_dropped_before_its_first_poll_counts() {
    let _alone = alone().await;
    let (store, operation, second) = (MemoryStore::new(), operation(), Duration::from_secs(1));
    drop(begun(&operation, &store).await.fail(Some(second)));
    assert!(drain(LEASE).await.is_complete());
    assert_eq!(refused(&operation, &store).await, ErrorKind::NotDue);
    sleep(second).await;
    let attempt = begun(&operation, &store).await;
    assert!(!attempt.context().recovered());
    drop(attempt.forget());
    assert!(drain(LEASE).await.is_complete());
    let attempt = begun(&operation, &store).await;
    assert_eq!(attempt.context().attempt(), 1);
    drop(attempt.complete(&7));
    assert!(drain(LEASE).await.is_complete());
    assert_eq!(replayed(&operation, &store).await, 7);
}

#[test]
fn an_attempt_is_renewed_after_the_runtime_that_began_it_has_ended() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // The lease is much longer than the pauses of a busy machine, because the key must not become free
    // between a renewal and the call that is refused below.
    let (first, second, lease) = (runtime(), runtime(), Duration::from_secs(5));
    let _alone = second.block_on(alone());
    let (store, operation) = (FaultStore::new(MemoryStore::new()), operation().lease(lease));
    // The answer needs a timer, as it does over a network.
    store.always(OperationKind::Renew, Fault::DelayBefore(Duration::from_millis(1)));
    let attempt = first.block_on(begun(&operation, &store));
    drop(first);
    // Waits for two more renewals. The lease of the grant is over before the store applies the second.
    let (renewed, begin) = (store.applied(OperationKind::Renew), std::time::Instant::now());
    while store.applied(OperationKind::Renew) < renewed + 2 {
        assert!(begin.elapsed() < lease * 20, "it is not renewed");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(second.block_on(refused(&operation, &store)), ErrorKind::InFlight);
    let (value, attempt) = second
        .block_on(attempt.run(async {
            sleep(Duration::from_millis(20)).await;
            7
        }))
        .expect("nobody took over");
    second.block_on(attempt.complete(&value)).unwrap();
    assert_eq!(second.block_on(replayed(&operation, &store)), 7);
}
