//! Tests of events and metrics: events have operation, digest and attempt; no event and no metric contains a
//! key or a result.

use crate::events::Events;
use crate::support;

use std::time::Duration;

use idem::testing::{Fault, FaultStore, OperationKind};
use idem::{MemoryStore, OnCrash, Store};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use serde_json::Value;
use support::{Failure, LEASE, SCOPE, crashed_worker, operation, record_key};
use tracing_subscriber::fmt::format::FmtSpan;

const KEY: &str = "4711-private-key";
const RESULT: &str = "private-result";

/// Starts to collect every event that a subscriber can get.
fn start() -> (Events, tracing::subscriber::DefaultGuard) {
    Events::with(tracing::Level::TRACE, FmtSpan::FULL)
}

/// The fields of idem's events. Checks that each event has the required fields, and that the log contains
/// neither key nor result.
fn fields(log: &Events) -> Vec<Value> {
    let text = log.text();
    assert!(!text.contains("private-key") && !text.contains(RESULT), "{text}");
    let digest = record_key(KEY).digest().to_string();
    let events = log.lines().into_iter().filter(|line| line["target"] == "idem");
    events
        .map(|line| {
            assert_eq!(line["span"]["name"], "idempotent_call", "{line}");
            let event = line["fields"].clone();
            assert_eq!((&event["operation"], &event["key"]), (&SCOPE.into(), &digest.clone().into()));
            assert!(event["attempt"].is_u64(), "{event}");
            event
        })
        .collect()
}

fn names(log: &Events) -> String {
    let names: Vec<_> = fields(log).iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect();
    names.join(" ")
}

async fn ok() -> Result<String, Failure> {
    Ok(RESULT.to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_first_call_a_duplicate_and_a_mismatch_are_told() {
    let (log, _guard) = start();
    let store = MemoryStore::new();
    operation().fingerprint(&1).run(&store, KEY, ok).await.unwrap();
    operation().fingerprint(&1).run(&store, KEY, ok).await.unwrap();
    operation().fingerprint(&2).run(&store, KEY, ok).await.unwrap_err();
    assert_eq!(names(&log), "claimed completed replayed mismatch");
    assert_eq!(fields(&log)[2]["attempt"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_crash_is_told_as_busy_then_recovered() {
    let (log, _guard) = start();
    let store = MemoryStore::new();
    crashed_worker(&store, KEY, OnCrash::Rerun).await;
    operation().run(&store, KEY, ok).await.unwrap_err();
    operation().wait(LEASE * 2).run(&store, KEY, ok).await.unwrap();
    assert_eq!(names(&log), "busy busy waited recovered completed");
    assert_eq!(fields(&log)[3]["attempt"], 2);
}

#[tokio::test(start_paused = true)]
async fn what_ends_or_refuses_a_call_is_told() {
    let (log, _guard) = start();
    let (store, once) = (MemoryStore::new(), operation().max_attempts(1));
    let fail = || async { Err::<String, _>(Failure::Transient) };
    once.run(&store, KEY, fail).await.unwrap_err();
    once.run(&store, KEY, fail).await.unwrap_err();
    let store = MemoryStore::new();
    let call = operation().run(&store, KEY, || async {
        store.forget(&record_key(KEY)).await.unwrap();
        crashed_worker(&store, KEY, OnCrash::Rerun).await;
        std::future::pending::<Result<String, Failure>>().await
    });
    call.await.unwrap_err();
    for policy in [OnCrash::InDoubt, OnCrash::Rerun] {
        let store = MemoryStore::new();
        crashed_worker(&store, KEY, policy).await;
        tokio::time::advance(LEASE).await;
        let found = operation().recover(|_| async { Ok(Some(RESULT.to_owned())) });
        let call = found.run(&store, KEY, ok).await;
        assert_eq!(call.is_ok(), policy == OnCrash::Rerun);
    }
    let told = "claimed released exhausted claimed lease_lost in_doubt recovered found completed";
    assert_eq!(names(&log), told);
}

#[tokio::test(start_paused = true)]
async fn what_becomes_of_a_step_is_told_by_its_name_and_without_its_value() {
    let (log, _guard) = start();
    let store = FaultStore::new(MemoryStore::new());
    let step = || idem::step("reserve", ok);
    let failing = || async {
        step().await?;
        Err::<String, _>(Failure::Transient)
    };
    operation().run(&store, KEY, failing).await.unwrap_err();
    store.always(OperationKind::Get, Fault::FailBefore);
    operation().run(&store, KEY, step).await.unwrap_err();
    store.always(OperationKind::Get, None);
    store.always(OperationKind::RecordStep, Fault::FailBefore);
    let unrecorded = || async {
        step().await?;
        idem::step("charge", ok).await
    };
    operation().run(&store, KEY, unrecorded).await.unwrap_err();
    let told = "claimed step_recorded released claimed steps_unread released \
                claimed step_replayed step_unrecorded released";
    assert_eq!(names(&log), told);
    let steps: Vec<_> =
        fields(&log).into_iter().filter_map(|event| Some(event.get("step")?.clone())).collect();
    assert_eq!(steps, ["reserve", "reserve", "charge"]);
}

#[tokio::test(start_paused = true)]
async fn failures_of_the_store_are_told() {
    let (log, _guard) = start();
    let store = FaultStore::new(MemoryStore::new());
    store.next(OperationKind::Claim, Fault::FailBefore);
    store.next(OperationKind::Claim, Fault::FailBefore);
    operation().run(&store, KEY, ok).await.unwrap_err();
    operation().fail_open().run(&store, KEY, ok).await.unwrap();
    store.next(OperationKind::Renew, Fault::FailBefore);
    store.always(OperationKind::Complete, Fault::FailBefore);
    let slow = || async {
        tokio::time::sleep(LEASE / 2).await;
        ok().await
    };
    operation().run(&store, KEY, slow).await.unwrap();
    store.next(OperationKind::Release, Fault::FailBefore);
    tokio::time::advance(LEASE).await;
    let fail = || async { Err::<String, _>(Failure::Transient) };
    operation().run(&store, KEY, fail).await.unwrap_err();
    let told =
        "store_failed unprotected claimed renewal_failed not_yet_recorded recovered release_failed released";
    assert_eq!(names(&log), told);
}

#[tokio::test(start_paused = true)]
async fn the_bodys_own_events_stand_in_the_span_of_the_call() {
    let (log, _guard) = start();
    let store = MemoryStore::new();
    let speaking = || async {
        tracing::info!(target: "user", "from the body");
        ok().await
    };
    operation().run(&store, KEY, speaking).await.unwrap();
    let line = log.lines().into_iter().find(|line| line.to_string().contains("from the body")).unwrap();
    assert_eq!(line["span"]["idem.operation"], SCOPE);
    assert_eq!(line["span"]["idem.key.digest"], record_key(KEY).digest().to_string());
    assert_eq!(line["span"]["idem.attempt"], 1);
    // When the span closes, it has the outcome too.
    operation().run(&store, KEY, ok).await.unwrap();
    let closed = log.lines();
    let closed = closed.iter().filter(|line| line["fields"]["message"] == "close");
    let outcomes: Vec<&Value> = closed.map(|line| &line["span"]["idem.outcome"]).collect();
    assert_eq!(outcomes, ["completed", "replayed"]);
}

#[tokio::test(start_paused = true)]
async fn events_are_counted_and_times_recorded() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let store = MemoryStore::new();
    let slow = || async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        ok().await
    };
    let waiting = operation().wait(LEASE);
    let (first, second) =
        futures_util::future::join(waiting.run(&store, KEY, slow), waiting.run(&store, KEY, slow)).await;
    first.unwrap();
    second.unwrap();

    let mut counts = std::collections::BTreeMap::new();
    let mut times = std::collections::BTreeMap::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let key = key.key();
        let label =
            |name: &str| key.labels().find(|label| label.key() == name).map(|label| label.value().to_owned());
        assert_eq!(label("operation").as_deref(), Some(SCOPE));
        assert!(key.labels().all(|label| !label.value().contains("private-key")));
        match value {
            DebugValue::Counter(count) => {
                assert_eq!(key.name(), "idem_events_total");
                counts.insert(label("event").unwrap(), count);
            }
            DebugValue::Histogram(seconds) => {
                if key.name() == "idem_store_request_seconds" {
                    assert_eq!(label("store").as_deref(), Some("MemoryStore"));
                }
                times.insert(key.name().to_owned(), seconds.iter().map(|seconds| seconds.0).sum::<f64>());
            }
            DebugValue::Gauge(_) => panic!("{} is a gauge", key.name()),
        }
    }
    let counted = [("busy", 1), ("claimed", 1), ("completed", 1), ("replayed", 1), ("waited", 1)];
    assert_eq!(counts, counted.map(|(name, count)| (name.to_owned(), count)).into());
    assert_eq!(
        times.keys().collect::<Vec<_>>(),
        ["idem_body_seconds", "idem_store_request_seconds", "idem_wait_seconds"]
    );
    assert!((2.0..2.1).contains(&times["idem_body_seconds"]), "{times:?}");
}
