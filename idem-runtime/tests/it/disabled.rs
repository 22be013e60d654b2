//! The store that keeps nothing.

use idem::{Disabled, DynStore, OnCrash, Store as _, context, step};

use crate::events::Events;
use crate::support::{Failure, LEASE, Runs, operation, record_key};

#[tokio::test(start_paused = true)]
async fn every_call_runs_and_nothing_is_kept_and_that_is_said_once() {
    let (events, _guard) = Events::start();
    let (store, runs) = (DynStore::new(Disabled), Runs::default());
    let operation = operation().on_crash(OnCrash::InDoubt).max_attempts(1);
    let mut fences = Vec::new();
    for number in 1..=3 {
        let body = || async {
            tokio::time::sleep(LEASE * 3).await;
            let fence = context().unwrap().fence().unwrap().get();
            step("a", || async { Ok::<_, Failure>((runs.run(), fence)) }).await
        };
        let (run, fence) = operation.run(&store, "k", body).await.unwrap();
        assert_eq!(run, number);
        fences.push(fence);
    }
    assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
    assert_eq!(store.get(&record_key("k")).await.unwrap(), None);
    assert_eq!(events.only("store_disabled")[0], "WARN");
}
