//! Tests of calls one after another: which run, which are replayed, which are refused.

use crate::support;

use std::time::Duration;

use idem::protocol::{Resolution, ResolveAnswer, State, StoredResult, Verdict};
use idem::{Error, MemoryStore, NotStored, OnCrash, Operation, Outcome, Store, observe};
use support::{Failure, LEASE, Runs, SCOPE, crashed_worker, operation, record_key};

async fn count(runs: &Runs) -> Result<usize, Failure> {
    Ok(runs.run())
}

#[tokio::test]
async fn a_duplicate_gets_the_first_result_and_does_not_run() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    for _ in 0..3 {
        assert_eq!(operation().run(&store, "k", || count(&runs)).await.unwrap(), 1);
    }
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn different_keys_and_different_operations_do_not_meet() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    assert_eq!(operation().run(&store, "a", || count(&runs)).await.unwrap(), 1);
    assert_eq!(operation().run(&store, "b", || count(&runs)).await.unwrap(), 2);
    assert_eq!(Operation::new("other").run(&store, "a", || count(&runs)).await.unwrap(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_result_is_kept_for_its_ttl_from_completion_and_no_longer() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let operation = operation().ttl(Duration::from_secs(60));
    let slow = || async {
        tokio::time::sleep(Duration::from_secs(50)).await;
        count(&runs).await
    };
    assert_eq!(operation.run(&store, "k", slow).await.unwrap(), 1);
    tokio::time::advance(Duration::from_millis(59_900)).await;
    assert_eq!(operation.run(&store, "k", || count(&runs)).await.unwrap(), 1);
    tokio::time::advance(Duration::from_millis(200)).await;
    assert_eq!(operation.run(&store, "k", || count(&runs)).await.unwrap(), 2);
}

#[tokio::test]
async fn an_error_releases_the_key_and_the_next_attempt_is_numbered() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    for attempt in 1..=3 {
        let failed = operation()
            .run(&store, "k", || async {
                runs.run();
                assert_eq!(idem::context().unwrap().attempt(), attempt);
                Err::<usize, _>(Failure::Transient)
            })
            .await;
        assert!(matches!(failed, Err(Failure::Transient)));
    }
    let observed = observe(operation().run(&store, "k", || count(&runs))).await;
    assert_eq!(observed.value.unwrap(), 4);
    assert!(matches!(observed.outcome, Some(Outcome::Executed { attempt: 4, recovered: false, .. })));
}

#[tokio::test]
async fn a_terminal_error_is_kept_and_replayed_as_an_error() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let operation = operation().terminal(Failure::is_final);
    let call = || {
        operation.run(&store, "k", || async {
            runs.run();
            Err::<usize, _>(Failure::Final)
        })
    };
    assert!(matches!(call().await, Err(Failure::Final)));
    let again = observe(call()).await;
    assert!(matches!(again.value, Err(Failure::Final)));
    assert!(again.outcome.unwrap().is_replayed());
    assert_eq!(runs.count(), 1);
    assert_eq!(store.get(&record_key("k")).await.unwrap().unwrap().state, State::Failed);
}

#[tokio::test]
async fn other_arguments_under_the_same_key_are_refused_in_every_state() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let paying = |amount: u64| operation().fingerprint(&amount);
    let refused =
        async |amount: u64| paying(amount).run(&store, "k", || count(&runs)).await.unwrap_err().kind();

    let failed = paying(1).run(&store, "k", || async { Err::<usize, _>(Failure::Transient) }).await;
    assert!(failed.is_err());
    assert_eq!(refused(2).await, "mismatch", "released");

    let inner = paying(1).run(&store, "k", || async {
        assert_eq!(refused(2).await, "mismatch", "in flight");
        assert_eq!(refused(1).await, "in_flight");
        count(&runs).await
    });
    assert_eq!(inner.await.unwrap(), 1);
    assert_eq!(refused(2).await, "mismatch", "completed");
    assert_eq!(paying(1).run(&store, "k", || count(&runs)).await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_crashed_workers_key_is_refused_until_its_lease_ends_and_then_taken_over() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    crashed_worker(&store, "k", OnCrash::Rerun).await;
    let refused = operation().run(&store, "k", || count(&runs)).await.unwrap_err();
    let Failure::Idem(Error::InFlight { retry_after, .. }) = refused else { panic!("{refused:?}") };
    assert!(retry_after <= LEASE && retry_after > LEASE - Duration::from_secs(1));

    tokio::time::advance(retry_after).await;
    let observed = observe(operation().run(&store, "k", || async {
        assert!(idem::context().unwrap().recovered());
        count(&runs).await
    }))
    .await;
    assert_eq!(observed.value.unwrap(), 1);
    assert!(matches!(observed.outcome, Some(Outcome::Executed { attempt: 2, recovered: true, .. })));
}

#[tokio::test(start_paused = true)]
async fn a_key_in_doubt_starts_no_body_until_an_operator_resolves_it() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let operation = operation().on_crash(OnCrash::InDoubt);
    crashed_worker(&store, "k", OnCrash::InDoubt).await;
    // No ttl deletes it either.
    tokio::time::advance(Duration::from_secs(10 * 365 * 86_400)).await;
    for _ in 0..2 {
        let refused = operation.run(&store, "k", || count(&runs)).await.unwrap_err();
        assert_eq!(refused.kind(), "in_doubt");
    }
    let result = Resolution::Record(Verdict::Completed, StoredResult::Value("7".into()));
    assert_eq!(store.resolve(&record_key("k"), &result).await.unwrap(), ResolveAnswer::Resolved);
    assert_eq!(operation.run(&store, "k", || count(&runs)).await.unwrap(), 7);
    assert_eq!(runs.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn attempts_run_out_after_crashes_and_after_errors() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let operation = operation().max_attempts(2);
    crashed_worker(&store, "k", OnCrash::Rerun).await;
    tokio::time::advance(LEASE).await;
    let failed = operation.run(&store, "k", || async { Err::<usize, _>(Failure::Transient) }).await;
    assert!(matches!(failed, Err(Failure::Transient)));
    for _ in 0..2 {
        let refused = operation.run(&store, "k", || count(&runs)).await.unwrap_err();
        assert!(matches!(refused, Failure::Idem(Error::Exhausted { attempts: 2, .. })), "{refused:?}");
    }
    assert_eq!(runs.count(), 0);
}

#[tokio::test]
async fn a_result_that_is_too_large_is_given_once_and_never_made_twice() {
    let (store, operation) = (MemoryStore::with_max_result_bytes(10), operation());
    let long = || async { Ok::<_, Failure>("x".repeat(100)) };
    assert_eq!(operation.run(&store, "k", long).await.unwrap().len(), 100);
    let again = operation.run(&store, "k", long).await.unwrap_err();
    let Failure::Idem(Error::ResultNotStored { reason, .. }) = again else { panic!("{again:?}") };
    assert_eq!(reason, NotStored::TooLarge);
}

/// A value whose `Serialize` fails, or panics.
#[derive(Debug, serde::Deserialize)]
struct Stubborn(bool);

impl serde::Serialize for Stubborn {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        assert!(!self.0, "a bug in a user's Serialize");
        Err(serde::ser::Error::custom("no"))
    }
}

#[tokio::test]
async fn a_result_that_does_not_encode_is_given_once_and_never_made_twice() {
    for panics in [false, true] {
        let (store, runs) = (MemoryStore::new(), Runs::default());
        let stubborn = || async {
            runs.run();
            Ok::<_, Failure>(Stubborn(panics))
        };
        assert!(operation().run(&store, "k", stubborn).await.is_ok());
        let again = operation().run(&store, "k", stubborn).await.unwrap_err();
        let Failure::Idem(Error::ResultNotStored { reason, .. }) = again else { panic!("{again:?}") };
        assert_eq!(reason, NotStored::NotEncodable);
        assert_eq!(runs.count(), 1);
    }
}

#[tokio::test]
async fn a_result_of_another_type_is_refused_kept_and_never_made_again() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let text = || async { Ok::<_, Failure>("text".to_owned()) };
    operation().run(&store, "k", text).await.unwrap();
    let refused = operation().run(&store, "k", || count(&runs)).await.unwrap_err();
    assert_eq!(refused.kind(), "undecodable");
    assert_eq!(operation().run(&store, "k", text).await.unwrap(), "text");
    assert_eq!(runs.count(), 0);
}

#[tokio::test]
async fn a_terminal_error_is_undecodable_once_nothing_is_terminal_any_more() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let failed = || async { Err::<usize, _>(Failure::Final) };
    operation().terminal(Failure::is_final).run(&store, "k", failed).await.unwrap_err();
    assert_eq!(operation().run(&store, "k", || count(&runs)).await.unwrap_err().kind(), "undecodable");
    assert_eq!(runs.count(), 0);
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
async fn an_observer_sees_the_observed_call_and_not_those_within() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    operation().run(&store, "inner", || count(&runs)).await.unwrap();
    let outer = observe(operation().run(&store, "outer", || async {
        let inner = observe(operation().run(&store, "inner", || count(&runs))).await;
        assert!(inner.outcome.unwrap().is_replayed());
        operation().run(&store, "inner", || count(&runs)).await
    }))
    .await;
    assert!(matches!(outer.outcome, Some(Outcome::Executed { attempt: 1, .. })));
}

#[tokio::test]
async fn a_refused_call_has_no_outcome() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    crashed_worker(&store, "k", OnCrash::Rerun).await;
    let refused = observe(operation().run(&store, "k", || count(&runs))).await;
    assert!(refused.value.is_err());
    assert_eq!(refused.outcome, None);
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

#[tokio::test]
async fn no_error_shows_a_key_a_result_or_a_fingerprint() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let key = "4711-secret-key";
    let operation = || operation().fingerprint("secret-amount").max_attempts(1);
    crashed_worker(&store, key, OnCrash::Rerun).await;
    let refused = operation().run(&store, key, || count(&runs)).await.unwrap_err();
    assert_eq!(refused.kind(), "in_flight");
    for shown in
        [refused.to_string(), format!("{refused:?}"), format!("{:?}", store.get(&record_key(key)).await)]
    {
        assert!(!shown.contains("secret"), "{shown}");
    }
    assert!(refused.to_string().contains(SCOPE));
    assert!(refused.to_string().contains(&record_key(key).digest().to_string()));
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
    for number in 0..20_000_u32 {
        operation.run(&store, number, || async { Ok::<_, Failure>(()) }).await.unwrap();
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    // A thousand are alive; some expired ones have not been deleted yet.
    assert!(store.len() < 2_500, "{} records", store.len());
}
