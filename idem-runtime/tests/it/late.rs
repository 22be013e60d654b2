//! Tests of recording in the background, and of waiting for it when a program ends.

use std::sync::{Arc, Mutex as Shared};
use std::time::Duration;

use futures_util::future::join_all;
use idem::protocol::{State, StoredResult, Verdict};
use idem::{LateRecording, MemoryStore, OnCrash, Outcome, Store as _, Unrecorded, drain, observe};
use idem_testing::{Fault, FaultStore, OperationKind};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{sleep, timeout};

use crate::events::Events;
use crate::support::{Failure, LEASE, Runs, crashed_worker, operation, record_key};

/// The counts are those of the process, so only one test runs at a time if tests share a process.
async fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::const_new(());
    ONE.lock().await
}

type Faulty = FaultStore<MemoryStore>;

fn faulty() -> Faulty {
    FaultStore::new(MemoryStore::new())
}

async fn call(store: &Faulty, runs: &Runs) -> Result<usize, Failure> {
    operation().run(store, "k", || async { Ok::<_, Failure>(runs.run()) }).await
}

async fn state(store: &Faulty) -> Option<State> {
    store.inner().get(&record_key("k")).await.unwrap().map(|record| record.state)
}

#[tokio::test(start_paused = true)]
async fn a_result_is_recorded_behind_its_caller_after_an_outage_longer_than_the_lease() {
    let _alone = alone().await;
    let (events, _guard) = Events::start();
    let (store, runs) = (faulty(), Runs::default());
    store.always(OperationKind::Complete, Fault::FailBefore);
    let outage = async {
        sleep(LEASE + Duration::from_secs(15)).await;
        store.always(OperationKind::Complete, None);
    };
    let (observed, ()) = futures_util::future::join(observe(call(&store, &runs)), outage).await;
    assert_eq!(observed.value.unwrap(), 1);
    assert!(matches!(observed.outcome, Some(Outcome::Unrecorded { .. })));
    assert_eq!(events.only("not_yet_recorded")[0], "ERROR");
    sleep(Duration::from_secs(5)).await;
    assert_eq!(events.only("recorded_late")[0], "WARN");
    assert_eq!(call(&store, &runs).await.unwrap(), 1, "a replay");
    assert_eq!(runs.count(), 1);
    assert!(!events.names().contains(&"unrecorded".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_late_result_is_given_up_once_somebody_took_over() {
    let _alone = alone().await;
    let (events, _guard) = Events::start();
    let installed = Installed::new(LateRecording::new());
    let (store, runs) = (faulty(), Runs::default());
    store.always(OperationKind::Complete, Fault::FailBefore);
    assert_eq!(call(&store, &runs).await.unwrap(), 1);
    sleep(LEASE).await;
    crashed_worker(store.inner(), "k", OnCrash::Rerun).await;
    assert!(installed.lost().is_empty());
    store.always(OperationKind::Complete, None);
    assert!(drain(Duration::from_secs(5)).await.is_complete());
    assert_eq!(events.only("unrecorded")[0], "ERROR");
    let [one] = installed.lost().try_into().unwrap();
    assert_eq!((one.call.key(), one.error.is_none()), (Some(record_key("k").digest()), true));
    assert_eq!(state(&store).await, Some(State::InFlight));
}

#[tokio::test(start_paused = true)]
async fn a_late_result_is_given_up_in_the_end() {
    let _alone = alone().await;
    let (events, _guard) = Events::start();
    let installed = Installed::new(LateRecording::new());
    let store = faulty();
    store.always(OperationKind::Complete, Fault::FailBefore);
    let call = operation().run(&store, "secret", || async { Ok::<_, Failure>("receipt".to_owned()) });
    assert_eq!(call.await.unwrap(), "receipt");
    assert_eq!(drain(Duration::from_secs(59 * 60)).await.results, 1);
    assert!(installed.lost().is_empty(), "it is not given up yet");
    let drained = drain(Duration::from_secs(120)).await;
    assert!(drained.is_complete(), "after an hour the result is given up");
    assert_eq!(events.only("unrecorded")[0], "ERROR");
    // The hook gets the result with its bytes and without its key.
    let [one] = installed.lost().try_into().unwrap();
    assert_eq!(
        (one.call.operation(), one.call.key()),
        (crate::support::SCOPE, Some(record_key("secret").digest()))
    );
    assert_eq!((one.attempt, one.verdict), (1, Verdict::Completed));
    assert_eq!(one.result, StoredResult::Value("\"receipt\"".into()));
    assert!(one.error.as_ref().unwrap().is_transient());
    let shown = format!("{one:?}");
    assert!(!shown.contains("secret") && !shown.contains("receipt"), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn late_results_are_bounded_in_number_and_bytes() {
    let _alone = alone().await;
    for (calls, bytes, kept) in [(1_100, 1, 1_000), (80, 1_000_000, 67)] {
        let (events, _guard) = Events::start();
        let store = faulty();
        store.always(OperationKind::Complete, Fault::FailBefore);
        let operation = operation().lease(Duration::from_secs(1)).store_timeout(Duration::from_secs(1));
        let results = (0..calls).map(|key| {
            let body = move || async move { Ok::<_, Failure>("a".repeat(bytes)) };
            operation.run(&store, format!("{key}"), body)
        });
        assert!(join_all(results).await.iter().all(Result::is_ok), "each caller gets its value");
        let count = |name: &str| events.names().iter().filter(|event| *event == name).count();
        assert_eq!((count("not_yet_recorded"), count("unrecorded")), (kept, calls - kept));
        store.always(OperationKind::Complete, None);
        assert!(drain(Duration::from_secs(10)).await.is_complete());
        assert_eq!(count("recorded_late"), kept);
    }
}

#[test]
fn a_runtime_that_is_dropped_leaves_nothing_to_wait_for_and_says_what_is_lost() {
    let (events, _guard) = Events::start();
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let store = faulty();
    store.always(OperationKind::Complete, Fault::FailBefore);
    let first = runtime();
    let alone = first.block_on(alone());
    assert_eq!(first.block_on(call(&store, &Runs::default())).unwrap(), 1);
    drop(first);
    assert_eq!(events.only("unrecorded")[0], "ERROR");
    assert!(runtime().block_on(drain(Duration::from_secs(1))).is_complete());
    drop(alone);
}

#[test]
fn a_result_whose_runtime_ends_while_it_is_recorded_goes_to_the_hook() {
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let last = runtime();
    let _alone = last.block_on(alone());
    for (fault, outlives) in [Fault::FailBefore, Fault::HangBefore].into_iter().zip([false, true]) {
        let (events, _guard) = Events::start();
        let installed = Installed::new(LateRecording::new());
        let (store, runs, first) = (faulty(), Runs::default(), runtime());
        store.always(OperationKind::Complete, fault);
        let mut abandoned = Box::pin(call(&store, &runs));
        first.block_on(async { timeout(Duration::from_millis(200), &mut abandoned).await.unwrap_err() });
        // The caller goes away before its runtime, or after it.
        if outlives {
            drop(first);
            drop(abandoned);
        } else {
            let _entered = first.enter();
            drop(abandoned);
            drop(_entered);
            drop(first);
        }
        let [one] = installed.lost().try_into().unwrap();
        assert_eq!(one.result, StoredResult::Value("1".into()));
        assert_eq!(events.only("unrecorded")[0], "ERROR");
        assert!(last.block_on(drain(Duration::from_secs(1))).is_complete());
    }
}

/// Settings that note the results that are given up, until this value is dropped.
struct Installed {
    lost: Arc<Shared<Vec<Unrecorded>>>,
}

impl Installed {
    fn new(settings: LateRecording) -> Self {
        let lost = Arc::new(Shared::new(Vec::new()));
        let noted = lost.clone();
        settings.on_unrecorded(move |one| noted.lock().unwrap().push(one.clone())).install();
        Self { lost }
    }

    fn lost(&self) -> Vec<Unrecorded> {
        self.lost.lock().unwrap().clone()
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        LateRecording::new().install();
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_panics_reaches_nobody() {
    let _alone = alone().await;
    let installed = Installed::new(LateRecording::new());
    LateRecording::new().on_unrecorded(|_| panic!("the program's own")).install();
    let store = faulty();
    store.always(OperationKind::Complete, Fault::FailBefore);
    assert_eq!(call(&store, &Runs::default()).await.unwrap(), 1);
    assert!(drain(Duration::from_secs(2 * 60 * 60)).await.is_complete());
    drop(installed);
}

#[tokio::test(start_paused = true)]
async fn a_gauge_says_how_many_results_wait_and_how_large_they_are() {
    let _alone = alone().await;
    let recorder = metrics_util::debugging::DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    // How much the gauges changed since they were last read.
    let gauges = || {
        use metrics_util::debugging::DebugValue;
        let all = snapshots.snapshot().into_vec();
        ["idem_late_results", "idem_late_bytes"].map(|name| {
            match all.iter().find(|(key, ..)| key.key().name() == name) {
                Some((_, _, _, DebugValue::Gauge(value))) => value.0.round(),
                other => panic!("{name}: {other:?}"),
            }
        })
    };
    let store = faulty();
    store.always(OperationKind::Complete, Fault::FailBefore);
    for key in ["1", "22"] {
        operation().run(&store, key, || async { Ok::<_, Failure>("ab".to_owned()) }).await.unwrap();
    }
    assert_eq!(gauges().map(|value| format!("{value}")), ["2", "8"]);
    store.always(OperationKind::Complete, None);
    assert!(drain(Duration::from_secs(60)).await.is_complete());
    assert_eq!(gauges().map(|value| format!("{value}")), ["-2", "-8"], "none is left");
}
