//! Results that cannot be recorded, and keys that cannot be released, at the end of a body.

use std::time::Duration;

use futures_util::future::join;
use idem::protocol::State;
use idem::testing::{Fault, OperationKind};
use idem::{Outcome, observe};
use tokio::time::Instant;

use super::{faulty, state};
use crate::support::{Failure, LEASE, Runs, operation};

#[tokio::test(start_paused = true)]
async fn a_value_is_kept_though_its_attempts_were_declared_used_up_meanwhile() {
    let (store, runs) = (faulty(), Runs::default());
    let operation = operation().max_attempts(1);
    store.always(OperationKind::Renew, Fault::FailBefore);
    let slow = observe(operation.run(&store, "k", || async {
        tokio::time::sleep(LEASE * 2).await;
        Ok::<_, Failure>(runs.run())
    }));
    let rival = async {
        tokio::time::sleep(LEASE + Duration::from_secs(1)).await;
        operation.run(&store, "k", || async { Ok::<_, Failure>(runs.run()) }).await
    };
    let (slow, rival) = join(slow, rival).await;
    assert_eq!(rival.unwrap_err().kind(), "exhausted");
    assert_eq!(slow.value.unwrap(), 1);
    assert!(matches!(slow.outcome, Some(Outcome::Unrecorded { .. })));
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
        // The default `store_timeout`: recording goes on behind the caller.
        let (held, elapsed) = (Duration::from_secs(10), started.elapsed());
        assert!(elapsed >= held && elapsed < held + Duration::from_secs(2), "{elapsed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_is_recorded_as_soon_as_the_store_is_back() {
    let (store, runs) = (faulty(), Runs::default());
    store.always(OperationKind::Complete, Fault::FailBefore);
    let call = operation().run(&store, "k", || async { Ok::<_, Failure>(runs.run()) });
    let recovery = async {
        tokio::time::sleep(Duration::from_secs(8)).await;
        store.always(OperationKind::Complete, None);
        Instant::now()
    };
    let (result, back) = join(call, recovery).await;
    assert_eq!(result.unwrap(), 1);
    assert!(back.elapsed() < Duration::from_secs(1));
    assert_eq!(state(&store).await, Some(State::Completed));
}

#[tokio::test(start_paused = true)]
async fn a_release_that_fails_does_not_hide_the_bodys_error_and_is_done_behind_it() {
    for fault in [Fault::FailBefore, Fault::HangBefore] {
        let store = faulty();
        store.next(OperationKind::Release, fault);
        let failed = operation().run(&store, "k", || async { Err::<usize, _>(Failure::Transient) }).await;
        assert!(matches!(failed, Err(Failure::Transient)));
        assert_eq!(
            operation().wait(LEASE).run(&store, "k", || async { Ok::<_, Failure>(2) }).await.unwrap(),
            2
        );
        assert!(store.asked(OperationKind::Release) >= 2);
    }
}
