//! Tests of a call whose store fails: before or after the write, slowly or without end, at each operation. Here are those
//! of a store that is down and of renewals, and the helpers.

mod claims;
mod results;

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use idem::protocol::State;
use idem::testing::{Fault, FaultStore, OperationKind};
use idem::{Error, MemoryStore, Outcome, Store, StoreErrorKind, observe};
use support::{Failure, LEASE, Runs, operation, record_key};

fn faulty() -> FaultStore<MemoryStore> {
    FaultStore::new(MemoryStore::new())
}

async fn state<S: Store>(store: &FaultStore<S>) -> Option<State> {
    store.inner().get(&record_key("k")).await.unwrap().map(|record| record.state)
}

fn store_error(failed: Result<usize, Failure>) -> StoreErrorKind {
    match failed {
        Err(Failure::Idem(Error::Store { source, .. })) => source.kind(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_on_a_store_that_is_down_is_refused_and_runs_nothing() {
    let (store, runs) = (faulty(), Runs::default());
    store.down(true);
    let failed = operation().run(&store, "k", || async { Ok::<_, Failure>(runs.run()) }).await;
    assert_eq!(store_error(failed), StoreErrorKind::Unavailable);
    assert_eq!(runs.count(), 0);
    store.down(false);
    assert_eq!(operation().run(&store, "k", || async { Ok::<_, Failure>(runs.run()) }).await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fails_open_runs_unprotected_and_says_so() {
    let (store, runs) = (faulty(), Runs::default());
    store.down(true);
    let observed = observe(operation().fail_open().run(&store, "k", || async {
        let context = idem::context().unwrap();
        assert!(!context.protected() && context.fence().is_none());
        Ok::<_, Failure>(runs.run())
    }))
    .await;
    assert_eq!(observed.value.unwrap(), 1);
    assert_eq!(observed.outcome, Some(Outcome::Unprotected));
}

#[tokio::test(start_paused = true)]
async fn an_observer_does_not_take_a_call_within_the_body_for_the_one_it_observes() {
    let (store, runs) = (faulty(), Runs::default());
    store.next(OperationKind::Claim, Fault::FailBefore);
    let observed = observe(operation().fail_open().run(&store, "outer", || async {
        operation().run(&store, "inner", || async { Ok::<_, Failure>(runs.run()) }).await
    }))
    .await;
    assert_eq!(observed.outcome, Some(Outcome::Unprotected));
}

#[tokio::test(start_paused = true)]
async fn a_body_whose_lease_is_lost_is_dropped_before_the_store_is_asked_again() {
    let store = faulty();
    store.always(OperationKind::Get, Fault::HangBefore);
    let held = Arc::new(());
    let body = held.clone();
    let call = operation().run(&store, "k", || async move {
        let _body = body;
        std::future::pending::<Result<usize, Failure>>().await
    });
    let watching = async {
        tokio::task::yield_now().await;
        store.inner().forget(&record_key("k")).await.unwrap();
        // The next renewal detects the loss; then the store hangs.
        tokio::time::sleep(LEASE / 2).await;
        Arc::strong_count(&held)
    };
    let (lost, held_by) = join(call, watching).await;
    assert_eq!(lost.unwrap_err().kind(), "lease_lost");
    assert_eq!(held_by, 1);
}

#[tokio::test(start_paused = true)]
async fn a_body_goes_on_through_an_outage_longer_than_its_lease_and_is_recorded_after_it() {
    let (store, runs) = (faulty(), Runs::default());
    let owner = operation();
    let owner = owner.run(&store, "k", || async {
        tokio::time::sleep(LEASE * 4).await;
        Ok::<_, Failure>(runs.run())
    });
    let outage = async {
        store.down(true);
        tokio::time::sleep(LEASE * 2).await;
        store.down(false);
    };
    let (owner, ()) = join(owner, async {
        tokio::task::yield_now().await;
        outage.await;
    })
    .await;
    assert_eq!(owner.unwrap(), 1);
    assert_eq!(state(&store).await, Some(State::Completed));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_bears_an_outage_and_does_not_run_unprotected_beside_the_one_in_flight() {
    let (store, runs) = (faulty(), Runs::default());
    let owner = operation();
    let owner = owner.run(&store, "k", || async {
        tokio::time::sleep(Duration::from_secs(8)).await;
        Ok::<_, Failure>(runs.run())
    });
    let waiting = async {
        tokio::task::yield_now().await;
        let waiting = operation().fail_open().wait(LEASE);
        waiting.run(&store, "k", || async { Ok::<_, Failure>(runs.run()) }).await
    };
    let outage = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        store.down(true);
        tokio::time::sleep(Duration::from_secs(5)).await;
        store.down(false);
    };
    let (owner, (waited, ())) = join(owner, join(waiting, outage)).await;
    assert_eq!((owner.unwrap(), waited.unwrap()), (1, 1));
}
