//! Tests of how long a call holds its caller while the store fails. The simulation tests what becomes of the
//! key.

use std::time::Duration;

use idem::testing::{Fault, FaultStore, OperationKind};
use idem::{Error, MemoryStore, Outcome, StoreErrorKind, observe};
use tokio::time::Instant;

use crate::support::{Failure, Runs, operation};

fn faulty() -> FaultStore<MemoryStore> {
    FaultStore::new(MemoryStore::new())
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_hangs_is_a_typed_error_within_the_store_timeout() {
    for fault in [Fault::HangBefore, Fault::HangAfter] {
        let (store, runs) = (faulty(), Runs::default());
        store.next(OperationKind::Claim, fault);
        let started = Instant::now();
        let failed = operation().run(&store, "k", || async { Ok::<_, Failure>(runs.run()) }).await;
        let Err(Failure::Idem(Error::Store { source, .. })) = failed else { panic!("{failed:?}") };
        assert_eq!(source.kind(), StoreErrorKind::OutcomeUnknown);
        assert_eq!(started.elapsed().as_secs(), 10);
        assert_eq!(runs.count(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_succeeded_gives_its_value_though_nothing_can_be_recorded() {
    for fault in [Fault::FailBefore, Fault::HangBefore] {
        let (store, runs) = (faulty(), Runs::default());
        store.always(OperationKind::Complete, fault);
        let started = Instant::now();
        let observed = observe(operation().run(&store, "k", || async { Ok::<_, Failure>(runs.run()) })).await;
        assert_eq!(observed.value.unwrap(), 1);
        assert!(matches!(observed.outcome, Some(Outcome::Unrecorded { attempt: 1, .. })));
        // The caller waits for the default `store_timeout`; then recording continues in the background.
        let (held, elapsed) = (Duration::from_secs(10), started.elapsed());
        assert!(elapsed >= held && elapsed < held + Duration::from_secs(2), "{elapsed:?}");
    }
}
