//! Tests of many callers at once: how long they wait, and how many requests they send to the store. The
//! simulation tests which callers run and which are refused.

use crate::support;

use std::time::Duration;

use futures_util::future::{join, join_all};
use idem::testing::{FaultStore, OperationKind};
use idem::{Error, MemoryStore, OnCrash, Store};
use support::{Failure, LEASE, completion, crashed_worker, operation, record_key};

#[tokio::test(start_paused = true)]
async fn the_waiters_of_a_process_share_one_poll() {
    let store = FaultStore::new(MemoryStore::new());
    let (owner, grant) = crashed_worker(&store, "k", OnCrash::Rerun).await;
    let operation = operation().wait(LEASE);
    let calls = (0..200).map(|_| operation.run(&store, "k", || async { Ok::<_, Failure>(0) }));
    let recording = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        // Completes the key directly on the wrapped store, as another process would, so this wakes no waiting
        // call.
        store.inner().complete(&record_key("k"), &completion(owner, grant, "7")).await.unwrap();
        tokio::time::Instant::now()
    };
    let (results, recorded) = join(join_all(calls), recording).await;
    assert!(results.into_iter().all(|result| result.unwrap() == 7));
    assert!(recorded.elapsed() <= Duration::from_millis(1_000), "{:?}", recorded.elapsed());
    // Each of the 200 callers claims once at the start, and the worker that crashed has claimed once. Then
    // one poll reads for all callers, with pauses that grow from 10 ms to at most half a second.
    let (claims, readings) = (store.asked(OperationKind::Claim), store.asked(OperationKind::Get));
    assert_eq!(claims, 201);
    assert!((1..100).contains(&readings), "{readings} readings");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_gives_up_when_its_time_is_over_and_says_how_long_is_left() {
    let store = MemoryStore::new();
    crashed_worker(&store, "k", OnCrash::Rerun).await;
    let started = tokio::time::Instant::now();
    let operation = operation().wait(Duration::from_secs(5));
    let refused = operation.run(&store, "k", || async { Ok::<_, Failure>(()) }).await.unwrap_err();
    assert_eq!(started.elapsed().as_millis(), 5_000);
    let Failure::Idem(Error::InFlight { retry_after, .. }) = refused else { panic!("{refused:?}") };
    assert!(retry_after <= LEASE - Duration::from_secs(5));
    assert!(retry_after >= LEASE - Duration::from_secs(6));
}

/// If a runtime runs no tasks, only its own callers wait longer.
#[test]
fn a_waiter_is_not_kept_by_a_runtime_that_nobody_drives() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (idle, driven) = (runtime(), runtime());
    let store = MemoryStore::new();
    let operation = operation().wait(LEASE);
    let call = || operation.run(&store, "k", || async { Ok::<_, Failure>(0) });
    let (owner, grant) = driven.block_on(crashed_worker(&store, "k", OnCrash::Rerun));
    let mut first = Box::pin(call());
    let waits = idle.block_on(async { tokio::time::timeout(Duration::from_millis(20), &mut first).await });
    assert!(waits.is_err());
    let recorded = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        store.complete(&record_key("k"), &completion(owner, grant, "7")).await.unwrap();
    };
    let (result, ()) = driven.block_on(join(call(), recorded));
    assert_eq!(result.unwrap(), 7);
    assert_eq!(idle.block_on(first).unwrap(), 7);
}
