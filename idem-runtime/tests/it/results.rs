//! Tests of results that a duplicate cannot get. The engine reports them at once, with the reason. Also tests
//! of panics after the body, in an observer and in the drop of a copy of the value.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use idem::observer::{CallEvent, CallObserver, observed_by};
use idem::protocol::State;
use idem::{Error, MemoryStore, NotStored, Outcome, StepError, Store as _, observe};
use serde::{Deserialize, Serialize};

use crate::events::Events;
use crate::support::{Failure, Runs, operation, record_key};

type Pairs = HashMap<(u8, u8), String>;

async fn pairs() -> Result<Pairs, Failure> {
    Ok(Pairs::from([((1, 2), "secret".to_owned())]))
}

#[tokio::test]
async fn a_result_that_is_too_large_is_told_at_once_and_one_that_fits_is_not() {
    for (size, expected) in [(98, None), (99, Some(NotStored::TooLarge))] {
        let (events, _guard) = Events::start();
        let store = MemoryStore::with_max_result_bytes(100);
        let call = operation();
        let call = observe(call.run(&store, "k", || async { Ok::<_, Failure>("a".repeat(size)) })).await;
        let Some(Outcome::Executed { not_stored, .. }) = call.outcome else { panic!("{:?}", call.outcome) };
        assert_eq!(not_stored, expected);
        assert_eq!(store.get(&record_key("k")).await.unwrap().unwrap().state, State::Completed);
        if expected.is_some() {
            assert_eq!(events.only("not_stored"), ["WARN", "it takes more than 100 bytes"]);
        } else {
            assert_eq!(events.names(), ["claimed", "completed"]);
        }
    }
}

/// A type that cannot decode what it encodes.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Receipt {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lines: Vec<String>,
}

async fn receipt() -> Result<Receipt, Failure> {
    Ok(Receipt { lines: Vec::new() })
}

#[tokio::test]
async fn what_would_not_decode_again_is_told_at_once_in_debug_builds() {
    let (events, _guard) = Events::start();
    let store = MemoryStore::new();
    operation().run(&store, "k", receipt).await.unwrap();
    assert_eq!(events.names(), ["claimed", "not_replayable", "completed"]);
    let expected = "missing field `lines` at line 1 column 2";
    assert_eq!(events.only("not_replayable"), ["WARN", expected]);
}

#[tokio::test]
async fn a_steps_value_that_cannot_be_given_to_a_later_run_is_told_at_once() {
    let (events, _guard) = Events::start();
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let body = || async {
        // The second run gets an error for each of these steps.
        let pairs = idem::step("pairs", pairs).await;
        let receipt = idem::step("receipt", receipt).await;
        if runs.run() == 1 {
            return Err(Failure::Transient);
        }
        let Err(Failure::Idem(Error::Step { source: StepError::NotStored(_), .. })) = pairs else {
            panic!("{pairs:?}")
        };
        let Err(Failure::Idem(Error::Step { source: StepError::Undecodable { reason, .. }, .. })) = receipt
        else {
            panic!("{receipt:?}")
        };
        Ok::<_, Failure>(reason.to_string())
    };
    operation().run(&store, "k", body).await.unwrap_err();
    assert_eq!(events.only("step_not_stored"), ["WARN", "key must be a string"]);
    let expected = "missing field `lines` at line 1 column 2";
    assert_eq!(events.only("step_not_replayable"), ["WARN", expected]);
    assert_eq!(operation().run(&store, "k", body).await.unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_after_the_body_loses_no_result() {
    struct Panics;
    impl CallObserver for Panics {
        fn event(&self, event: &CallEvent<'_>) {
            assert!(!matches!(event, CallEvent::Outcome(Outcome::Executed { .. })), "the program's own");
        }
    }
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let operation = operation().wait(Duration::from_secs(5));
    let call = || operation.run(&store, "k", || async { Ok::<_, Failure>(runs.run()) });
    assert!(AssertUnwindSafe(observed_by(Arc::new(Panics), call())).catch_unwind().await.is_err());
    assert_eq!((call().await.unwrap(), runs.count()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_the_value_that_panics_when_it_is_dropped_reaches_no_caller() {
    static PANICS: AtomicBool = AtomicBool::new(true);
    #[derive(Debug)]
    struct Loud(usize, bool);
    impl Serialize for Loud {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            self.0.serialize(serializer)
        }
    }
    impl<'de> Deserialize<'de> for Loud {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            usize::deserialize(deserializer).map(|number| Self(number, true))
        }
    }
    impl Drop for Loud {
        fn drop(&mut self) {
            assert!(!self.1 || !PANICS.swap(false, Ordering::SeqCst), "the program's own");
        }
    }
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let call = || async {
        operation().run(&store, "k", || async { Ok::<_, Failure>(Loud(runs.run(), false)) }).await
    };
    assert_eq!(call().await.unwrap().0, 1);
    assert_eq!((call().await.unwrap().0, runs.count()), (1, 1));
}
