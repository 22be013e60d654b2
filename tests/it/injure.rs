//! Tests of `injure`: which operations it injures, which tests it refuses, and what it prints.

use std::cell::Cell;
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::future::join;
use idem_runtime::{Error, Key, MemoryStore, Operation, RecordKey, Scope, Store, step};
use idem_testing::{Trial, TrialStore, idempotent_test, injure};
use tokio::time::sleep;

fn charge() -> Operation {
    Operation::new("injury.charge")
}

async fn charged(store: &impl Store) -> Result<u32, Error> {
    let body = async || {
        sleep(Duration::from_millis(20)).await;
        Ok(1)
    };
    charge().run(store, "42", body).await
}

fn record() -> RecordKey {
    RecordKey::new(Scope::new("injury.charge").unwrap(), Key::new("42").unwrap())
}

#[derive(Debug)]
struct Failed;

impl From<Error> for Failed {
    fn from(_: Error) -> Self {
        Self
    }
}

#[test]
fn a_call_survives_every_injury_of_reading_its_steps() {
    let report = injure("reads its steps", async |trial: Trial| {
        let (store, is_first) = (trial.store(), Cell::new(true));
        let attempt = || {
            charge().run(&store, "42", async || {
                let shelf = step("reserve", async || Ok::<_, Failed>(7)).await?;
                if is_first.replace(false) { Err(Failed) } else { Ok(shelf) }
            })
        };
        let call = || async {
            match attempt().await {
                Err(_) => attempt().await,
                value => value,
            }
        };
        assert_eq!(trial.call(call).await, 7);
    });
    assert!(report.broken().is_empty(), "{report}");
    // The places: claim, record the step, release; claim, read, complete; and the claim of the repeated call.
    assert_eq!((report.places(), report.runs()), (7, 1 + 7 * 7), "{report}");
}

/// The first call reads its record in the background, one second after its body began.
#[test]
fn a_worker_that_is_dead_or_paused_does_not_read() {
    let report = injure("reads in the background", async |trial: Trial| {
        let (store, is_first) = (trial.store(), Cell::new(true));
        let reads = Arc::new(Mutex::new(Vec::new()));
        let call = || {
            charge().run(&store, "42", async || {
                if is_first.replace(false) {
                    let (store, reads) = (store.clone(), reads.clone());
                    tokio::spawn(async move {
                        sleep(Duration::from_secs(1)).await;
                        let read = store.get(&record()).await;
                        reads.lock().unwrap().push(read.is_ok());
                    });
                }
                sleep(Duration::from_millis(20)).await;
                Ok::<_, Error>(1)
            })
        };
        trial.call(call).await;
        assert!(!reads.lock().unwrap().contains(&true), "a read was answered");
    });
    // If only the caller drops its future, the worker is not dead, so its read is answered.
    let here = report.broken().into_iter().filter(|at| at.ends_with("at point 2, an await"));
    assert_eq!(here.collect::<Vec<_>>(), ["dropped caller at point 2, an await"], "{report}");
}

#[test]
fn a_test_without_a_call_is_refused() {
    let report = injure("no call", async |trial: Trial| {
        assert_eq!(charged(&trial.store()).await.unwrap(), 1);
    });
    assert_eq!(report.broken(), ["no injury at all"], "{report}");
    assert!(report.to_string().contains("help: write `trial.call(|| ..).await`"), "{report}");
}

#[test]
fn a_test_without_the_store_of_its_trial_is_refused() {
    let report = injure("no store", async |trial: Trial| {
        let store = MemoryStore::new();
        trial.call(|| charged(&store)).await;
    });
    assert_eq!(report.broken(), ["no injury at all"], "{report}");
    assert!(report.to_string().contains("help: pass `trial.store()`"), "{report}");
}

#[test]
fn a_store_that_outlives_its_run_is_found() {
    let store = OnceLock::<TrialStore>::new();
    let report = injure("one store for all runs", async |trial: Trial| {
        let store = store.get_or_init(|| trial.store());
        trial.call(|| charged(store)).await;
    });
    assert_eq!(report.broken().len(), report.runs() - 1, "{report}");
    let text = report.to_string();
    assert!(text.contains("the run does not come to this point"), "{report}");
    assert_eq!(text.matches("help: make the store").count(), 1, "{report}");
}

#[idempotent_test(crate = ::idem_testing)]
#[should_panic(expected = "charged twice")]
async fn a_test_that_panics_everywhere(trial: Trial) {
    let store = trial.store();
    let charges = Arc::new(Mutex::new(0));
    let body = async || {
        let charges = charges.clone();
        let thread = std::thread::spawn(|| panic!("a thread of the test"));
        assert!(thread.join().is_err());
        let (go, gone) = std::sync::mpsc::channel();
        let task = tokio::task::spawn_blocking(move || gone.recv().map(|()| panic!("a task of the run")));
        // The task ends after the first poll, so that every run passes the same points.
        let (ended, _) = join(task, async { go.send(()) }).await;
        assert!(ended.is_err());
        *charges.lock().unwrap() += 1;
        Ok::<_, Error>(1)
    };
    trial.call(|| charge().run(&store, "42", body)).await;
    assert_eq!(*charges.lock().unwrap(), 1, "charged twice");
}

/// Runs `a_test_that_panics_everywhere` in another process, and reads what that process prints.
#[test]
fn a_broken_test_prints_each_message_once() {
    let mut test = Command::new(std::env::current_exe().unwrap());
    test.args(["--exact", "injure::a_test_that_panics_everywhere", "--nocapture"]);
    let output = test.env("RUST_BACKTRACE", "0").output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success() && text[0].contains("1 passed"), "{}", text.concat());
    let panics = text[1].split("\nthread '").filter(|panic| !panic.contains("a thread of the test"));
    let [_, summary] = panics.collect::<Vec<_>>()[..] else { panic!("not one panic: {}", text[1]) };
    let broken = summary.matches("\n* ").count();
    assert!(broken > 1 && summary.matches("charged twice").count() == broken, "{summary}");
    assert!(summary.contains("\n* crash before at point "), "{summary}");
    for part in ["right: 1\n  at tests/it/injure.rs:", "another panic of the run: a task of the run"] {
        assert_eq!(summary.matches(part).count(), 1, "{part}: {summary}");
    }
    // The hook prints the panics of threads that do not belong to the run.
    assert!(text[1].matches("a thread of the test").count() > broken, "{}", text[1]);
}
