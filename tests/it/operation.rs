//! Tests of calls one after another: results that do not encode, derived keys, settings that cannot work, and
//! the size of the store in memory. The simulation tests which calls run, are replayed or are refused.

use crate::support;

use std::time::Duration;

use idem::{Error, MemoryStore, NotStored, OnCrash, Operation};
use support::{Failure, LEASE, Runs, operation};

async fn count(runs: &Runs) -> Result<usize, Failure> {
    Ok(runs.run())
}

/// A value whose `Serialize` panics.
#[derive(Debug, serde::Deserialize)]
struct Stubborn;

impl serde::Serialize for Stubborn {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        panic!("a bug in a user's Serialize")
    }
}

#[tokio::test]
async fn a_result_that_does_not_encode_is_given_once_and_never_made_twice() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let stubborn = || async {
        runs.run();
        Ok::<_, Failure>(Stubborn)
    };
    assert!(operation().run(&store, "k", stubborn).await.is_ok());
    let again = operation().run(&store, "k", stubborn).await.unwrap_err();
    let Failure::Idem(Error::ResultNotStored { reason, .. }) = again else { panic!("{again:?}") };
    assert_eq!((reason, runs.count()), (NotStored::NotEncodable, 1));
}

#[tokio::test]
async fn a_downstream_key_is_stable_over_attempts_and_apart_for_everything_else() {
    let store = MemoryStore::new();
    let derive = async |operation: Operation, key: &str, name: &str, fail: bool| {
        let mut derived = String::new();
        let _ = operation
            .run(&store, key, || async {
                derived = idem::context().unwrap().downstream_key(name);
                if fail { Err(Failure::Transient) } else { Ok(()) }
            })
            .await;
        derived
    };
    let first = derive(operation(), "k", "gateway", true).await;
    assert_eq!(first, derive(operation(), "k", "gateway", true).await);
    assert_eq!(first.len(), 32);
    for other in [
        derive(operation(), "k", "mailer", true).await,
        derive(operation(), "l", "gateway", true).await,
        derive(Operation::new("other"), "k", "gateway", true).await,
    ] {
        assert_ne!(first, other);
    }
}

#[tokio::test]
async fn every_value_that_cannot_work_is_an_error_before_the_store_is_asked() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let century = Duration::from_secs(200 * 365 * 86_400);
    let long = "x".repeat(1_025);
    for (operation, key, kind) in [
        (operation(), "", "missing_key"),
        (operation(), long.as_str(), "invalid_key"),
        (Operation::new(""), "k", "invalid_key"),
        (Operation::new(" \n"), "k", "invalid_key"),
        (Operation::new(long.clone()), "k", "invalid_key"),
        (operation().ttl(Duration::ZERO), "k", "configuration"),
        (operation().ttl(century), "k", "configuration"),
        (operation().lease(Duration::ZERO), "k", "configuration"),
        (operation().lease(Duration::MAX), "k", "configuration"),
        (operation().wait(Duration::MAX), "k", "configuration"),
        (operation().store_timeout(Duration::ZERO), "k", "configuration"),
        (operation().timeout(Duration::ZERO), "k", "configuration"),
        (operation().timeout(Duration::MAX), "k", "configuration"),
        (operation().retry_after(LEASE..Duration::from_secs(1)), "k", "configuration"),
        (operation().retry_after(Duration::MAX), "k", "configuration"),
        (operation().max_attempts(0), "k", "configuration"),
        (operation().fail_open().on_crash(OnCrash::InDoubt), "k", "configuration"),
        (operation().fingerprint(&f64::NAN), "k", "configuration"),
    ] {
        let refused = operation.run(&store, key, || count(&runs)).await.unwrap_err();
        assert_eq!(refused.kind(), kind, "{refused}");
    }
    assert_eq!(runs.count(), 0);
    assert!(store.is_empty());
}

#[test]
fn a_call_outside_a_runtime_is_an_error_and_no_panic() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let operation = operation();
    let mut call = std::pin::pin!(operation.run(&store, "k", || count(&runs)));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(Err(refused)) = call.as_mut().poll(&mut cx) else { panic!("not refused") };
    assert_eq!(refused.kind(), "configuration");
}

#[tokio::test(start_paused = true)]
async fn memory_stays_bounded_under_a_stream_of_ever_new_keys() {
    let store = MemoryStore::new();
    let operation = operation().ttl(Duration::from_secs(10)).lease(Duration::from_secs(1));
    for number in 0..5_000_u32 {
        operation.run(&store, number, || async { Ok::<_, Failure>(()) }).await.unwrap();
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    // A thousand records are alive; some expired records have not been deleted yet.
    assert!(store.len() < 2_500, "{} records", store.len());
}
