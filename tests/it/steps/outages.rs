//! Steps whose store fails: what cannot be recorded or read.

use idem::protocol::State;
use idem::testing::{Fault, OperationKind};
use idem::{OnCrash, StepError};
use tokio::time::Instant;

use super::{counted, faulty, reason, recorded, state};
use crate::support::{Failure, LEASE, Runs, operation};

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_to_the_end_ends_the_step_and_lets_no_other_begin() {
    let (store, runs) = (faulty(), Runs::default());
    store.always(OperationKind::RecordStep, Fault::FailBefore);
    let began = Instant::now();
    let call = operation().run(&store, "k", || async {
        let failed = reason(counted("a", &runs).await.unwrap_err());
        assert!(matches!(failed, StepError::Store(_)));
        assert!(began.elapsed() >= LEASE, "{:?}", began.elapsed());
        let next = reason(counted("b", &runs).await.unwrap_err());
        assert!(matches!(next, StepError::Store(_)));
        // The store is back: the unrecorded step is recorded first, and the step returns its earlier value.
        store.always(OperationKind::RecordStep, None);
        assert_eq!(counted("c", &runs).await?, 2);
        assert_eq!(recorded(&store).await, ["a", "c"]);
        assert_eq!(counted("a", &runs).await?, 1);
        Ok::<_, Failure>(0)
    });
    call.await.unwrap();
    assert_eq!(runs.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_rerun_that_cannot_read_what_is_recorded_runs_no_step() {
    let (store, runs) = (faulty(), Runs::default());
    let body = || async {
        counted("a", &runs).await?;
        Err::<usize, _>(Failure::Transient)
    };
    operation().run(&store, "k", body).await.unwrap_err();
    store.always(OperationKind::Get, Fault::FailBefore);
    let failed = reason(operation().run(&store, "k", body).await.unwrap_err());
    assert!(matches!(failed, StepError::Store(_)));
    store.always(OperationKind::Get, None);
    store.next(OperationKind::Get, Fault::FailBefore);
    assert!(matches!(operation().run(&store, "k", body).await, Err(Failure::Transient)));
    assert_eq!(runs.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_error_after_a_step_that_could_not_be_recorded_leaves_the_key_in_doubt_where_that_is_the_policy() {
    let runs = Runs::default();
    for (on_crash, expected) in [(OnCrash::Rerun, State::Released), (OnCrash::InDoubt, State::InDoubt)] {
        let store = faulty();
        store.always(OperationKind::RecordStep, Fault::FailBefore);
        let call = operation().on_crash(on_crash).run(&store, "k", || counted("a", &runs));
        assert_eq!(call.await.unwrap_err().kind(), "step_store");
        assert_eq!(state(&store).await, Some(expected));
    }
}
