//! Tests of where a call is made: in which runtime, inside which other call.

use std::time::Duration;

use idem::{Error, MemoryStore};
use tokio::time::Instant;

use crate::support::{Failure, LEASE, Runs, operation};

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
async fn a_body_that_calls_itself_under_its_own_key_is_told_so_at_once() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let inner = |key: &'static str| {
        let (store, runs) = (&store, &runs);
        let call = operation().wait(LEASE);
        async move { call.run(store, key, move || async move { Ok::<_, Failure>(runs.run()) }).await }
    };
    let call = operation().run(&store, "k", || async {
        // The same happens if there is another call in between.
        let between = operation().run(&store, "between", || inner("k")).await;
        assert!(between.unwrap_err().to_string().contains("its own body"));
        let started = Instant::now();
        let refused = inner("k").await.unwrap_err();
        assert_eq!((refused.kind(), started.elapsed()), ("in_flight", Duration::ZERO));
        let Failure::Idem(error) = &refused else { panic!("{refused:?}") };
        assert!(matches!(error, Error::InFlight { reentrant: true, .. }));
        assert_eq!(error.retry_after(), None);
        inner("other").await
    });
    assert_eq!(call.await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_same_key_in_another_store_is_not_the_bodys_own() {
    let (store, other) = (MemoryStore::new(), MemoryStore::new());
    crate::support::crashed_worker(&other, "k", idem::OnCrash::Rerun).await;
    let call = operation()
        .run(&store, "k", || async { operation().run(&other, "k", || async { Ok::<_, Failure>(1) }).await });
    let refused = call.await.unwrap_err();
    assert!(matches!(refused, Failure::Idem(Error::InFlight { reentrant: false, .. })), "{refused:?}");
}
