//! Tests of `injure`: which operations it injures, which tests it refuses, and what it prints.

use std::cell::Cell;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idem_runtime::{Error, Key, Operation, RecordKey, Scope, Store, step};
use idem_testing::{Trial, injure};
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

#[test]
fn a_failed_read_that_passes_for_an_absent_record_is_found() {
    let report = injure("reads", async |trial: Trial| {
        let store = trial.store();
        let call = || async {
            charged(&store).await?;
            Ok::<_, Error>(store.get(&record()).await.is_ok_and(|record| record.is_some()))
        };
        trial.call(call).await;
    });
    let lost_answers = ["lost answer at point 4, the store's get", "lost answer at point 6, the store's get"];
    assert!(lost_answers.iter().all(|at| report.broken().contains(at)), "{report}");
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
    // Claim, record the step, release; claim, read, complete; and the claim of the repeated call.
    assert_eq!((report.places(), report.runs()), (7, 1 + 7 * 7), "{report}");
}

/// The first call reads its record in the background, a second after it began.
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
    // The worker of a dropped caller lives.
    let here = report.broken().into_iter().filter(|at| at.ends_with("at point 2, an await"));
    assert_eq!(here.collect::<Vec<_>>(), ["dropped caller at point 2, an await"], "{report}");
}

#[test]
fn operations_are_printed_in_words() {
    let report = injure("swallows an error", async |trial: Trial| {
        let store = trial.store();
        let call = || async {
            let body = async || step("reserve", async || Ok::<_, Error>(7)).await;
            Ok::<_, Error>(charge().run(&store, "42", body).await.unwrap_or(0))
        };
        trial.call(call).await;
    });
    assert!(report.to_string().contains(", the store's record step"), "{report}");
}
