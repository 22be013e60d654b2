//! Claims whose answer is lost, late or never comes, and grants that nobody uses.

use std::time::Duration;

use idem::StoreErrorKind;
use idem::protocol::State;
use idem::testing::{Fault, OperationKind};
use tokio::time::Instant;

use super::{faulty, state, store_error};
use crate::support::{Failure, Runs, operation};

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_a_claim_is_asked_again_and_the_body_runs_once() {
    let (store, runs) = (faulty(), Runs::default());
    store.next_times(OperationKind::Claim, 3, Fault::FailAfter);
    let result = operation().run(&store, "k", || async {
        assert_eq!(idem::context().unwrap().attempt(), 1);
        Ok::<_, Failure>(runs.run())
    });
    assert_eq!(result.await.unwrap(), 1);
    assert_eq!(store.applied(OperationKind::Claim), 4);
    assert_eq!(state(&store).await, Some(State::Completed));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_hangs_is_a_typed_error_within_the_store_timeout() {
    for fault in [Fault::HangBefore, Fault::HangAfter] {
        let (store, runs) = (faulty(), Runs::default());
        store.next(OperationKind::Claim, fault);
        let started = Instant::now();
        let failed = operation().run(&store, "k", || async { Ok::<_, Failure>(runs.run()) }).await;
        assert_eq!(store_error(failed), StoreErrorKind::OutcomeUnknown);
        assert_eq!(started.elapsed().as_secs(), 10);
        assert_eq!(runs.count(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_was_long_on_its_way_is_renewed_before_the_body_starts() {
    let store = faulty();
    store.next(OperationKind::Claim, Fault::DelayAfter(Duration::from_secs(9)));
    let call = operation().lease(Duration::from_secs(10));
    let call = call.run(&store, "k", || async {
        assert_eq!(store.applied(OperationKind::Renew), 1);
        Ok::<_, Failure>(())
    });
    call.await.unwrap();
}
