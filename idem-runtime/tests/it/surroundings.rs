//! Tests of where a call is made: in which runtime, inside which other call.

use idem::{Error, MemoryStore, OnCrash};

use crate::support::{Failure, Runs, crashed_worker, operation};

#[test]
fn a_runtime_without_timers_is_refused_before_the_body_begins() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let call = operation().run(&store, "k", || async {
        runs.run();
        tokio::task::yield_now().await;
        Ok::<_, Failure>(0)
    });
    let refused = runtime.block_on(call).unwrap_err();
    assert!(matches!(refused, Failure::Idem(Error::Configuration { .. })), "{refused}");
    assert!(refused.to_string().contains("enable_time"), "{refused}");
    assert_eq!(runs.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_same_key_in_another_store_is_not_the_bodys_own() {
    let (store, other) = (MemoryStore::new(), MemoryStore::new());
    crashed_worker(&other, "k", OnCrash::Rerun).await;
    let call = operation()
        .run(&store, "k", || async { operation().run(&other, "k", || async { Ok::<_, Failure>(1) }).await });
    let refused = call.await.unwrap_err();
    assert!(matches!(refused, Failure::Idem(Error::InFlight { reentrant: false, .. })), "{refused:?}");
}
