//! Tests of the lease: it is kept while the body runs, even if the body blocks its thread; and what happens when it is
//! lost.

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use idem::protocol::State;
use idem::testing::{FaultStore, OperationKind};
use idem::{MemoryStore, OnCrash, Outcome, Store, drain, idempotent, observe, with_deadline};
use idem_test_servers::until;
use support::{Failure, LEASE, Runs, completion, crashed_worker, operation, record_key};
use tokio::sync::Notify;

#[tokio::test(start_paused = true)]
async fn a_long_body_keeps_its_lease() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let body = || async {
        tokio::time::sleep(LEASE * 10).await;
        Ok::<_, Failure>(runs.run())
    };
    let first = operation();
    let first = first.run(&store, "k", body);
    let rivals = async {
        for _ in 0..19 {
            tokio::time::sleep(LEASE / 2).await;
            assert_eq!(operation().run(&store, "k", body).await.unwrap_err().kind(), "in_flight");
        }
    };
    let (first, ()) = futures_util::future::join(first, rivals).await;
    assert_eq!(first.unwrap(), 1);
    assert_eq!(runs.count(), 1);
}

/// Long beside the pauses of a busy machine.
const SHORT: Duration = Duration::from_secs(5);

/// Two renewals reach beyond the lease that was granted; the rival tries while the second one holds.
#[tokio::test]
async fn a_body_that_blocks_the_only_thread_of_its_runtime_keeps_its_lease() {
    let store = FaultStore::new(MemoryStore::new());
    let own = operation().lease(SHORT).run(&store, "k", || async {
        until("the lease is renewed twice", || store.applied(OperationKind::Renew) >= 2);
        let store = store.clone();
        let rival = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let call =
                operation().lease(SHORT).run(&store, "k", || async { Ok::<_, Failure>("rival".to_owned()) });
            runtime.block_on(call).unwrap_err().kind()
        });
        assert_eq!(rival.join().unwrap(), "in_flight");
        Ok::<_, Failure>("owner".to_owned())
    });
    assert_eq!(own.await.unwrap(), "owner");
}

#[tokio::test]
async fn a_slow_owner_cannot_overwrite_its_successor_and_gets_its_result() {
    let store = MemoryStore::new();
    let observed = observe(operation().run(&store, "k", || async {
        store.forget(&record_key("k")).await.unwrap();
        let (owner, grant) = crashed_worker(&store, "k", OnCrash::Rerun).await;
        store.complete(&record_key("k"), &completion(owner, grant, "7")).await.unwrap();
        Ok::<_, Failure>(1)
    }))
    .await;
    assert_eq!(observed.value.unwrap(), 7);
    assert!(matches!(observed.outcome, Some(Outcome::Replayed { .. })));
    assert_eq!(operation().run(&store, "k", || async { Ok::<_, Failure>(2) }).await.unwrap(), 7);
}

#[tokio::test]
async fn a_slow_owner_whose_successor_is_still_running_is_told_that_its_lease_is_lost() {
    let store = MemoryStore::new();
    let call = operation().run(&store, "k", || async {
        store.forget(&record_key("k")).await.unwrap();
        crashed_worker(&store, "k", OnCrash::Rerun).await;
        Ok::<_, Failure>(1)
    });
    assert_eq!(call.await.unwrap_err().kind(), "lease_lost");
    assert_eq!(store.get(&record_key("k")).await.unwrap().unwrap().state, State::InFlight);
}

#[tokio::test]
async fn a_value_whose_record_was_forgotten_is_still_the_callers() {
    let store = MemoryStore::new();
    let call = operation().run(&store, "k", || async {
        store.forget(&record_key("k")).await.unwrap();
        Ok::<_, Failure>(1)
    });
    assert_eq!(call.await.unwrap(), 1);
}

#[tokio::test]
async fn a_body_of_one_poll_costs_no_task_and_no_renewal() {
    let store = MemoryStore::new();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let entered = Notify::new();
    let call = operation().run(&store, "k", || async {
        entered.notify_one();
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok::<_, Failure>(())
    });
    let looked = async {
        entered.notified().await;
        tasks()
    };
    let (result, during) = futures_util::future::join(call, looked).await;
    result.unwrap();
    assert_eq!(during, before);
}

#[idempotent(key = "{id}", scope = "test.operation", detach, store = store)]
async fn detached(store: MemoryStore, id: String, end: Arc<Notify>) -> Result<u32, Failure> {
    drop((store, id));
    end.notified().await;
    Ok(1)
}

#[tokio::test(start_paused = true)]
async fn a_deadline_cuts_the_lease_of_a_detached_body_too() {
    let store = MemoryStore::new();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
    let call = with_deadline(deadline, detached(store.clone(), "k".into(), Arc::default()));
    let rival = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        operation().run(&store, "k", || async { Ok::<_, Failure>(2) }).await
    };
    let raced = futures_util::future::select(Box::pin(call), Box::pin(rival)).await;
    assert_eq!(raced.factor_first().0.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn draining_waits_for_detached_bodies_and_counts_those_that_are_left() {
    let (store, end) = (MemoryStore::new(), Arc::new(Notify::new()));
    let call = detached(store.clone(), "k".into(), end.clone());
    assert!(tokio::time::timeout(Duration::from_secs(1), call).await.is_err());
    let left = drain(Duration::from_secs(1)).await;
    assert_eq!((left.bodies, left.is_complete()), (1, false));
    end.notify_one();
    assert!(drain(Duration::from_secs(1)).await.is_complete());
    assert_eq!(store.get(&record_key("k")).await.unwrap().unwrap().state, State::Completed);
}
