//! Tests of recording in the background, and of waiting for it when a program ends.

use std::sync::mpsc;
use std::time::Duration;

use futures_util::future::join_all;
use idem::protocol::{State, StoredResult, Verdict};
use idem::{LateRecording, MemoryStore, OnCrash, Unrecorded, drain};
use idem_testing::{Fault, FaultStore, OperationKind};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tokio::time::{sleep, timeout};

use crate::alone;
use crate::events::Events;
use crate::support::{Failure, LEASE, Runs, crashed_worker, operation, record_key, state};

type Faulty = FaultStore<MemoryStore>;

fn faulty() -> Faulty {
    FaultStore::new(MemoryStore::new())
}

async fn call(store: &Faulty, runs: &Runs) -> Result<usize, Failure> {
    operation().run(store, "k", || async { Ok::<_, Failure>(runs.run()) }).await
}

/// Receives the results that the engine gives up from now on.
fn unrecorded_results() -> mpsc::Receiver<Unrecorded> {
    let (sender, receiver) = mpsc::channel();
    let hook = move |one: &Unrecorded| {
        let _ = sender.send(one.clone());
    };
    LateRecording::new().on_unrecorded(hook).install();
    receiver
}

#[tokio::test(start_paused = true)]
async fn a_late_result_is_given_up_once_somebody_took_over() {
    let _alone = alone().await;
    let (events, _guard) = Events::start();
    let unrecorded = unrecorded_results();
    let (store, runs) = (faulty(), Runs::default());
    store.always(OperationKind::Complete, Fault::FailBefore);
    assert_eq!(call(&store, &runs).await.unwrap(), 1);
    sleep(LEASE).await;
    crashed_worker(store.inner(), "k", OnCrash::Rerun).await;
    assert!(unrecorded.try_recv().is_err());
    store.always(OperationKind::Complete, None);
    assert!(drain(Duration::from_secs(5)).await.is_complete());
    assert_eq!(events.only("unrecorded")[0], "ERROR");
    let [one] = unrecorded.try_iter().collect::<Vec<_>>().try_into().unwrap();
    assert_eq!((one.call.key(), one.error.is_none()), (Some(record_key("k").digest()), true));
    assert_eq!(state(&store).await, Some(State::InFlight));
}

#[tokio::test(start_paused = true)]
async fn a_late_result_is_given_up_in_the_end() {
    let _alone = alone().await;
    let (events, _guard) = Events::start();
    let unrecorded = unrecorded_results();
    let store = faulty();
    store.always(OperationKind::Complete, Fault::FailBefore);
    let call = operation().run(&store, "secret", || async { Ok::<_, Failure>("receipt".to_owned()) });
    assert_eq!(call.await.unwrap(), "receipt");
    assert_eq!(drain(Duration::from_secs(59 * 60)).await.results, 1);
    assert!(unrecorded.try_recv().is_err(), "it is not given up yet");
    let drained = drain(Duration::from_secs(120)).await;
    assert!(drained.is_complete(), "after an hour the result is given up");
    assert_eq!(events.only("unrecorded")[0], "ERROR");
    // The hook gets the bytes of the result, and the digest of its key instead of the key.
    let [one] = unrecorded.try_iter().collect::<Vec<_>>().try_into().unwrap();
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
async fn late_results_are_bounded_gauges_say_how_many_wait_and_a_hook_that_panics_reaches_nobody() {
    let _alone = alone().await;
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    let _recorded = metrics::set_default_local_recorder(&recorder);
    // The engine calls this hook with each result beyond the limits. The panic reaches no caller.
    LateRecording::new().on_unrecorded(|_| panic!("the program's own")).install();
    // How much the gauges changed since they were last read.
    let gauges = || {
        let all = snapshots.snapshot().into_vec();
        ["idem_late_results", "idem_late_bytes"].map(|name| {
            match all.iter().find(|(key, ..)| key.key().name() == name) {
                Some((_, _, _, DebugValue::Gauge(value))) => format!("{}", value.0.round()),
                other => panic!("{name}: {other:?}"),
            }
        })
    };
    for (calls, bytes, kept) in [(1_010, 1, 1_000), (80, 1_000_000, 67)] {
        let (events, _guard) = Events::start();
        let store = faulty();
        store.always(OperationKind::Complete, Fault::FailBefore);
        let operation = operation().lease(Duration::from_secs(1)).store_timeout(Duration::from_secs(1));
        let results = (0..calls).map(|key| {
            let body = move || async move { Ok::<_, Failure>("a".repeat(bytes)) };
            operation.run(&store, format!("{key}"), body)
        });
        assert!(join_all(results).await.iter().all(Result::is_ok), "each caller gets its value");
        let count = |level: &str, name: &str| {
            events.all().iter().filter(|[is, event, _]| is == level && event == name).count()
        };
        assert_eq!((count("ERROR", "not_yet_recorded"), count("ERROR", "unrecorded")), (kept, calls - kept));
        // JSON has quotes around the text.
        let size = kept * (bytes + 2);
        assert_eq!(gauges(), [format!("{kept}"), format!("{size}")]);
        // The outage is longer than the lease.
        sleep(Duration::from_secs(15)).await;
        store.always(OperationKind::Complete, None);
        assert!(drain(Duration::from_secs(10)).await.is_complete());
        assert_eq!(count("WARN", "recorded_late"), kept);
        assert_eq!(gauges(), [format!("-{kept}"), format!("-{size}")], "none is left");
    }
}

#[test]
fn a_result_whose_runtime_ends_before_it_is_recorded_goes_to_the_hook() {
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let last = runtime();
    let _alone = last.block_on(alone());
    let (short, long) = (Duration::from_millis(200), LEASE);
    for (fault, patience, outlives) in
        [(Fault::FailBefore, long, true), (Fault::FailBefore, short, false), (Fault::HangBefore, short, true)]
    {
        let (events, _guard) = Events::start();
        let unrecorded = unrecorded_results();
        let (store, runs, first) = (faulty(), Runs::default(), runtime());
        store.always(OperationKind::Complete, fault);
        let mut caller = Box::pin(call(&store, &runs));
        let answered = first.block_on(async { timeout(patience, &mut caller).await.is_ok() });
        assert_eq!(answered, patience == long, "{fault:?}");
        // The caller goes away after the end of its runtime, or before it.
        if outlives {
            drop(first);
            drop(caller);
        } else {
            let _entered = first.enter();
            drop(caller);
            drop(_entered);
            drop(first);
        }
        let [one] = unrecorded.try_iter().collect::<Vec<_>>().try_into().unwrap();
        assert_eq!(one.result, StoredResult::Value("1".into()));
        assert_eq!(events.only("unrecorded")[0], "ERROR");
        assert!(last.block_on(drain(Duration::from_secs(1))).is_complete());
    }
}
