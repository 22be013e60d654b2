//! Tests of operations with rules about their results, the same rules as in the attribute.

use std::time::Duration;

use idem::protocol::StoredResult;
use idem::{Error, MemoryStore, OnCrash, Operation, Outcome, Recovery, ResultRules, Store as _};
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use crate::support::{Failure, Runs, completion, crashed_worker, operation, record_key};

const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    number: u64,
    currency: String,
}

#[tokio::test]
async fn a_value_that_is_not_to_be_kept_is_returned_and_the_key_released() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let operation = operation().retry_after(SECOND).record_if(|number: &usize| number.is_multiple_of(2));
    for number in [1, 2, 2] {
        let call = operation.run(&store, "k", || async { Ok::<_, Failure>(runs.run()) });
        let observed = idem::observe(call).await;
        assert_eq!(observed.value.unwrap(), number);
        let is_kept = !matches!(observed.outcome, Some(Outcome::NotKept { .. }));
        assert_eq!(is_kept, number.is_multiple_of(2), "{:?}", observed.outcome);
    }
}

/// The store with these bytes recorded for `k`.
async fn with(recorded: &'static [u8]) -> MemoryStore {
    let store = MemoryStore::new();
    let (owner, grant) = crashed_worker(&store, "k", OnCrash::Rerun).await;
    let request = completion(owner, grant, "").with_result(StoredResult::Value(recorded.into()));
    store.complete(&record_key("k"), &request).await.unwrap();
    store
}

async fn never() -> Result<Receipt, Failure> {
    panic!("the body must not run")
}

#[tokio::test]
async fn what_does_not_decode_is_undecodable_with_the_reason_and_without_the_value() {
    for (recorded, reason) in [
        (&b"\"secret\""[..], "invalid type: string, expected struct Receipt at line 1 column 8"),
        (b"99", "invalid type: integer, expected struct Receipt at line 1 column 2"),
        (b"\x06secret", "expected JSON, found format 0x06, which this version of idem does not know"),
        (b"\x01\0\xc8\0\0", "expected JSON, found a response of the HTTP layer"),
    ] {
        let store = with(recorded).await;
        let failed = operation().run(&store, "k", never).await.unwrap_err();
        let Failure::Idem(error @ Error::Undecodable { reason: said, .. }) = &failed else {
            panic!("{failed:?}")
        };
        assert_eq!(said.as_ref(), reason);
        assert!(!error.to_string().contains("secret"), "{error}");
        let record = store.get(&record_key("k")).await.unwrap().unwrap();
        assert_eq!(record.result, Some(StoredResult::Value(recorded.into())), "it stays");
    }
}

/// Rules with a `terminal` function.
type Rules = ResultRules<usize, Failure>;

/// Drops the caller of a detached call after a second, and waits until the call has ended.
async fn detached(call: impl Future<Output = Result<usize, Failure>>) {
    assert!(timeout(SECOND, call).await.is_err(), "the caller goes away");
    assert!(idem::drain(SECOND * 60).await.is_complete());
}

async fn slow() -> Result<usize, Failure> {
    sleep(SECOND * 10).await;
    Ok(7)
}

#[tokio::test(start_paused = true)]
async fn a_detached_call_ends_without_its_caller() {
    let store = MemoryStore::new();
    let typed: Operation<Rules> = operation().terminal(Failure::is_final);
    let nothing = |_: Recovery| async { Ok(None) };
    detached(operation().run_detached(&store, "plain", slow)).await;
    detached(typed.run_detached(&store, "typed", slow)).await;
    detached(operation().recover(nothing).run_detached(&store, "recovering", slow)).await;
    detached(typed.clone().recover(nothing).run_detached(&store, "both", slow)).await;
    for key in ["plain", "typed", "recovering", "both"] {
        let replayed = operation().run(&store, key, || async { Err::<usize, _>(Failure::Final) }).await;
        assert_eq!(replayed.unwrap(), 7, "{key}");
    }
}

#[tokio::test]
async fn a_body_that_blocks_its_thread_ends_when_it_lets_go_of_it() {
    let store = MemoryStore::new();
    let operation = Operation::new("blocking").timeout(Duration::from_millis(20));
    let block = || std::thread::sleep(Duration::from_millis(60));
    // This body awaits after it has blocked, and is dropped there.
    let awaits = || async move {
        block();
        sleep(SECOND * 60).await;
        Ok::<_, Failure>(1)
    };
    assert_eq!(operation.run(&store, "awaits", awaits).await.unwrap_err().kind(), "timed_out");
    // This body already has its result when its time is over, so the result is kept.
    let returns = || async move {
        block();
        Ok::<_, Failure>(2)
    };
    assert_eq!(operation.run(&store, "returns", returns).await.unwrap(), 2);
    // In `spawn_blocking`, only the wait for the work ends; the work continues.
    let (go_on, may_end) = std::sync::mpsc::channel();
    let (done, told) = tokio::sync::oneshot::channel();
    let spawned = || async move {
        let work = tokio::task::spawn_blocking(move || {
            let _ = may_end.recv();
            let _ = done.send(());
        });
        work.await.map_err(|_| Failure::Final)
    };
    assert_eq!(operation.run(&store, "spawned", spawned).await.unwrap_err().kind(), "timed_out");
    go_on.send(()).unwrap();
    told.await.expect("the work ended all the same");
}

#[tokio::test]
async fn an_operation_names_the_record_of_a_call() {
    let store = MemoryStore::new();
    operation().run(&store, "k", || async { Ok::<_, Failure>(1) }).await.unwrap();
    let key = operation().record_key("k").unwrap();
    assert_eq!(key, record_key("k"));
    assert!(store.forget(&key).await.unwrap());
    assert!(matches!(operation().record_key(""), Err(Error::MissingKey { .. })));
    assert!(operation().ttl(Duration::ZERO).record_key("k").is_err());
}
