//! Claims whose answer is lost, late or never comes, and grants that nobody uses.

use std::time::Duration;

use futures_util::future::join;
use idem::protocol::State;
use idem::testing::{Fault, OperationKind};
use idem::{Error, OnCrash, StoreErrorKind};
use tokio::time::Instant;

use super::{faulty, state, store_error};
use crate::support::{Failure, LEASE, Runs, crashed_worker, operation};

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
async fn a_grant_that_comes_after_its_caller_gave_up_is_given_back() {
    let (store, runs) = (faulty(), Runs::default());
    store.next(OperationKind::Claim, Fault::DelayAfter(Duration::from_secs(12)));
    let failed = operation().run(&store, "k", || async { Ok::<_, Failure>(runs.run()) }).await;
    assert_eq!(store_error(failed), StoreErrorKind::OutcomeUnknown);
    assert_eq!(state(&store).await, Some(State::InFlight));
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(state(&store).await, Some(State::Released));
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_outcome_stays_unknown_is_found_out_and_given_back() {
    // The claim is granted, the answer is lost, and then the store is down until the call has failed.
    let (store, runs) = (faulty(), Runs::default());
    store.next(OperationKind::Claim, Fault::FailAfter);
    store.next(OperationKind::Claim, Fault::FailBefore);
    let failed = operation().run(&store, "k", || async { Ok::<_, Failure>(runs.run()) }).await;
    assert_eq!(store_error(failed), StoreErrorKind::OutcomeUnknown);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(state(&store).await, Some(State::Released));

    // The same if the caller goes away instead.
    let (store, runs) = (faulty(), Runs::default());
    store.next(OperationKind::Claim, Fault::FailAfter);
    let call = operation().on_crash(OnCrash::InDoubt);
    let call = call.run(&store, "k", || async { Ok::<_, Failure>(runs.run()) });
    assert!(tokio::time::timeout(Duration::from_millis(1), call).await.is_err());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(state(&store).await, Some(State::Released));
    assert_eq!(runs.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_never_answered_is_found_out_though_the_store_is_down_when_it_is_asked_again() {
    let (store, runs) = (faulty(), Runs::default());
    store.next(OperationKind::Claim, Fault::DelayAfter(Duration::from_secs(3_600)));
    store.next(OperationKind::Claim, Fault::FailBefore);
    let failed = operation().run(&store, "k", || async { Ok::<_, Failure>(runs.run()) }).await;
    assert_eq!(store_error(failed), StoreErrorKind::OutcomeUnknown);
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(state(&store).await, Some(State::Released), "long before its lease ends");
    assert_eq!(runs.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_was_not_used_is_no_attempt() {
    let (store, runs) = (faulty(), Runs::default());
    let operation = operation().max_attempts(1);
    for _ in 0..3 {
        store.next(OperationKind::Claim, Fault::DelayAfter(Duration::from_secs(12)));
        let failed = operation.run(&store, "k", || async { Ok::<_, Failure>(runs.run()) }).await;
        assert_eq!(store_error(failed), StoreErrorKind::OutcomeUnknown);
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    let call = operation.run(&store, "k", || async {
        assert_eq!(idem::context().unwrap().attempt(), 1);
        Ok::<_, Failure>(runs.run())
    });
    assert_eq!(call.await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_unused_takeover_leaves_the_crash_to_be_seen_by_the_next() {
    let (store, runs) = (faulty(), Runs::default());
    crashed_worker(&store, "k", OnCrash::Rerun).await;
    tokio::time::sleep(LEASE).await;
    store.next(OperationKind::Claim, Fault::DelayAfter(Duration::from_secs(12)));
    operation().run(&store, "k", || async { Ok::<_, Failure>(runs.run()) }).await.unwrap_err();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let call = operation().run(&store, "k", || async {
        let context = idem::context().unwrap();
        assert_eq!((context.attempt(), context.recovered()), (2, true));
        Ok::<_, Failure>(runs.run())
    });
    assert_eq!(call.await.unwrap(), 1);
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

#[tokio::test(start_paused = true)]
async fn a_late_grant_is_renewed_as_often_as_it_takes() {
    let store = faulty();
    store.next(OperationKind::Claim, Fault::DelayAfter(Duration::from_millis(400)));
    store.next_times(OperationKind::Renew, 5, Fault::HangBefore);
    let call = operation().lease(Duration::from_millis(400));
    call.run(&store, "k", || async { Ok::<_, Failure>(()) }).await.unwrap();
    assert_eq!(store.applied(OperationKind::Renew), 1);
}

#[tokio::test(start_paused = true)]
async fn a_late_grant_whose_lease_another_has_taken_is_not_used() {
    let store = faulty();
    store.next(OperationKind::Claim, Fault::DelayAfter(Duration::from_secs(9)));
    let slow = operation().lease(Duration::from_secs(5));
    let slow = slow.run(&store, "k", || async { Ok::<_, Failure>("slow".to_owned()) });
    let quick = async {
        tokio::time::sleep(Duration::from_secs(6)).await;
        operation()
            .run(&store, "k", || async {
                tokio::time::sleep(Duration::from_secs(20)).await;
                Ok::<_, Failure>("quick".to_owned())
            })
            .await
    };
    let (slow, quick) = join(slow, quick).await;
    let refused = slow.unwrap_err();
    let Failure::Idem(Error::InFlight { retry_after, .. }) = refused else { panic!("{refused:?}") };
    assert!(retry_after > LEASE / 2, "{retry_after:?} is what is left of the successor's lease");
    assert_eq!(quick.unwrap(), "quick");
}
