//! Tests of waiting and of leases if the store is slow or a deadline is near.

use std::time::Duration;

use futures_util::future::join_all;
use idem::{MemoryStore, OnCrash, Store as _, step, with_deadline};
use idem_testing::{Fault, FaultStore, OperationKind};
use tokio::time::{Instant, sleep};

use crate::support::{Failure, LEASE, Runs, completion, crashed_worker, operation, record_key};

#[tokio::test(start_paused = true)]
async fn the_waiters_share_one_poll_while_the_store_is_down_and_a_claim_that_fails_ends_no_wait() {
    let store = FaultStore::new(MemoryStore::new());
    crashed_worker(&store, "k", OnCrash::Rerun).await;
    let operation = operation().wait(LEASE * 2);
    let calls = join_all((0..200).map(|_| operation.run(&store, "k", || async { Ok::<_, Failure>(0) })));
    let outage = async {
        sleep(Duration::from_secs(1)).await;
        let kinds = [OperationKind::Claim, OperationKind::Get];
        kinds.iter().for_each(|kind| store.always(*kind, Fault::HangBefore));
        sleep(Duration::from_secs(18)).await;
        kinds.iter().for_each(|kind| store.always(*kind, None));
        // The first claim after the end of the crashed worker's lease fails.
        store.next(OperationKind::Claim, Fault::FailBefore);
    };
    let (results, ()) = futures_util::future::join(calls, outage).await;
    assert!(results.into_iter().all(|result| result.unwrap() == 0));
    let asked = store.asked(OperationKind::Claim) + store.asked(OperationKind::Get);
    assert!(asked < 260, "{asked} requests");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_begins_just_before_its_deadline_is_not_renewed_a_thousand_times_a_second() {
    let (store, runs) = (FaultStore::new(MemoryStore::new()), Runs::default());
    let call = operation();
    let call = call.run(&store, "k", || async {
        sleep(Duration::from_secs(10)).await;
        Ok::<_, Failure>(runs.run())
    });
    let deadline = Instant::now() + Duration::from_millis(1);
    assert_eq!(with_deadline(deadline, call).await.unwrap(), 1);
    let renewals = store.asked(OperationKind::Renew);
    assert!(renewals <= 20, "{renewals} renewals");
}

#[tokio::test(start_paused = true)]
async fn a_call_with_no_time_left_is_refused_before_its_store_is_asked() {
    let (store, runs) = (FaultStore::new(MemoryStore::new()), Runs::default());
    let operation = operation();
    let call = operation.run(&store, "k", || async { Ok::<_, Failure>(runs.run()) });
    let refused = with_deadline(Instant::now(), call).await.unwrap_err();
    assert_eq!((refused.kind(), runs.count(), store.asked(OperationKind::Claim)), ("no_time_left", 0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_calls_that_went_away_leave_to_be_found_out_is_bounded() {
    let _alone = crate::alone().await;
    let store = FaultStore::new(MemoryStore::new());
    store.always(OperationKind::Claim, Fault::FailAfter);
    store.always(OperationKind::Get, Fault::FailBefore);
    let operation = operation().lease(LEASE * 10).store_timeout(Duration::from_secs(1));
    let calls =
        (0..10_500).map(|key| operation.run(&store, format!("{key}"), || async { Ok::<_, Failure>(0) }));
    assert!(join_all(calls).await.iter().all(Result::is_err));
    sleep(Duration::from_secs(10)).await;
    assert_eq!(idem::drain(Duration::ZERO).await.releases, 10_000);
    store.always(OperationKind::Get, None);
    assert!(idem::drain(Duration::from_secs(5)).await.is_complete());
}

#[tokio::test(start_paused = true)]
async fn a_caller_waits_for_a_step_before_a_release_no_longer_than_the_store_timeout() {
    let store = FaultStore::new(MemoryStore::new());
    store.always(OperationKind::RecordStep, Fault::HangBefore);
    let operation = operation().lease(LEASE * 20).store_timeout(Duration::from_secs(5));
    let begin = Instant::now();
    let body = || async {
        let charge = step("charge", || async { Ok::<_, Failure>(1) });
        // After a millisecond, the body no longer waits for this step.
        let _ = tokio::time::timeout(Duration::from_millis(1), charge).await;
        Err::<u32, _>(Failure::Transient)
    };
    assert_eq!(operation.run(&store, "k", body).await.unwrap_err().kind(), "body");
    let waited = begin.elapsed();
    assert!(waited < Duration::from_secs(11), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_gets_no_result_that_was_forgotten_before_it_began() {
    let store = FaultStore::new(MemoryStore::new());
    let (owner, grant) = crashed_worker(&store, "k", OnCrash::Rerun).await;
    let operation = operation().wait(Duration::from_secs(20));
    let wait = || operation.run(&store, "k", || async { Ok::<_, Failure>(3) });
    let first = async {
        // The poll of this caller reads the first result, and the store's answer takes a while.
        store.next(OperationKind::Get, Fault::DelayAfter(Duration::from_secs(2)));
        wait().await
    };
    let second = async {
        sleep(Duration::from_secs(1)).await;
        store.inner().forget(&record_key("k")).await.unwrap();
        let (owner, grant) = crashed_worker(store.inner(), "k", OnCrash::Rerun).await;
        let waiter = wait();
        let owner = async {
            sleep(Duration::from_secs(3)).await;
            store.inner().complete(&record_key("k"), &completion(owner, grant, "2")).await.unwrap();
        };
        futures_util::future::join(waiter, owner).await.0
    };
    let claimed = async {
        // This completion comes between the refusal of the first caller and the reading by its poll.
        store.inner().complete(&record_key("k"), &completion(owner, grant, "1")).await.unwrap();
        std::future::pending::<()>().await;
    };
    let calls = futures_util::future::join(first, second);
    let (_, second) = tokio::select! { results = calls => results, () = claimed => unreachable!() };
    assert_eq!(second.unwrap(), 2);
}

#[test]
fn a_caller_that_waits_in_a_runtime_that_was_shut_down_blocks_nobody() {
    let (ends, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (store, handle) = (MemoryStore::new(), runtime.handle().clone());
        let operation = operation().wait(Duration::from_secs(20));
        let call = |key: &'static str| operation.run(&store, key, || async { Ok::<_, Failure>(0) });
        // After this call, the engine no longer checks in this thread whether the runtime has timers.
        runtime.block_on(call("other")).unwrap();
        runtime.block_on(crashed_worker(&store, "k", OnCrash::Rerun));
        runtime.shutdown_background();
        // Tokio's timers panic in a runtime that was shut down.
        let call = std::panic::AssertUnwindSafe(|| handle.block_on(call("k")).is_err());
        ends.send(std::panic::catch_unwind(call)).unwrap();
    });
    assert!(ended.recv_timeout(Duration::from_secs(30)).is_ok(), "it is still there");
}
