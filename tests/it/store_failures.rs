//! Tests of a call whose store fails: before or after the write, slowly or without end, at each operation.

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use idem::protocol::State;
use idem::testing::{Fault, FaultStore, OperationKind};
use idem::{Error, MemoryStore, OnCrash, Outcome, Store, StoreErrorKind, observe};
use support::{Failure, LEASE, Runs, crashed_worker, operation, record_key};
use tokio::time::Instant;

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
async fn a_call_that_fails_open_is_still_refused_where_the_store_knows_better() {
    let (store, runs) = (faulty(), Runs::default());
    let call = operation().fail_open();
    let outer = call.run(&store, "k", || async {
        let inner = operation().fail_open();
        let inner = inner.run(&store, "k", || async { Ok::<_, Failure>(runs.run()) }).await;
        assert_eq!(inner.unwrap_err().kind(), "in_flight");
        Ok::<_, Failure>(runs.run())
    });
    assert_eq!(outer.await.unwrap(), 1);
}

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
async fn an_error_whose_caller_goes_away_while_it_is_released_leaves_no_doubt() {
    let store = faulty();
    store.next(OperationKind::Release, Fault::HangBefore);
    let operation = operation().on_crash(OnCrash::InDoubt);
    let call = operation.run(&store, "k", || async { Err::<usize, _>(Failure::Transient) });
    assert!(tokio::time::timeout(Duration::from_millis(1), call).await.is_err());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(state(&store).await, Some(State::Released));
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

#[tokio::test(start_paused = true)]
async fn a_body_that_succeeded_gives_its_value_though_nothing_can_be_recorded() {
    for fault in [Fault::FailBefore, Fault::HangBefore] {
        let (store, runs) = (faulty(), Runs::default());
        store.always(OperationKind::Complete, fault);
        let started = Instant::now();
        let observed = observe(operation().run(&store, "k", || async { Ok::<_, Failure>(runs.run()) })).await;
        assert_eq!(observed.value.unwrap(), 1);
        assert!(matches!(observed.outcome, Some(Outcome::Unrecorded { attempt: 1, .. })));
        let elapsed = started.elapsed();
        assert!(elapsed >= LEASE && elapsed < LEASE + Duration::from_secs(2), "{elapsed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_is_recorded_as_soon_as_the_store_is_back() {
    let (store, runs) = (faulty(), Runs::default());
    store.always(OperationKind::Complete, Fault::FailBefore);
    let call = operation().run(&store, "k", || async { Ok::<_, Failure>(runs.run()) });
    let recovery = async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        store.always(OperationKind::Complete, None);
        Instant::now()
    };
    let (result, back) = join(call, recovery).await;
    assert_eq!(result.unwrap(), 1);
    assert!(back.elapsed() < Duration::from_secs(1));
    assert_eq!(state(&store).await, Some(State::Completed));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_a_completion_is_asked_again_and_is_no_loss() {
    let (store, runs) = (faulty(), Runs::default());
    store.next_times(OperationKind::Complete, 2, Fault::FailAfter);
    let call = || operation().run(&store, "k", || async { Ok::<_, Failure>(runs.run()) });
    let observed = observe(call()).await;
    assert_eq!(observed.value.unwrap(), 1);
    assert!(matches!(observed.outcome, Some(Outcome::Executed { .. })));
    assert_eq!(call().await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_short_lease_does_not_shorten_the_time_a_result_is_tried_to_be_recorded() {
    let (store, runs) = (faulty(), Runs::default());
    store.always(OperationKind::Complete, Fault::FailBefore);
    let call = operation().lease(Duration::from_millis(300));
    let call = call.run(&store, "k", || async { Ok::<_, Failure>(runs.run()) });
    let recovery = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        store.always(OperationKind::Complete, None);
    };
    let (result, ()) = join(call, recovery).await;
    assert_eq!(result.unwrap(), 1);
    assert_eq!(state(&store).await, Some(State::Completed));
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_while_its_result_is_recorded_is_recorded_in_the_background() {
    let (store, runs) = (faulty(), Runs::default());
    store.next(OperationKind::Complete, Fault::HangBefore);
    let call = operation().run(&store, "k", || async { Ok::<_, Failure>(runs.run()) });
    assert!(tokio::time::timeout(Duration::from_millis(1), call).await.is_err());
    assert_eq!(operation().wait(LEASE).run(&store, "k", || async { Ok::<_, Failure>(9) }).await.unwrap(), 1);
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

#[tokio::test(start_paused = true)]
async fn failed_renewals_are_tried_again_and_the_lease_is_kept() {
    let (store, runs) = (faulty(), Runs::default());
    store.next_times(OperationKind::Renew, 4, Fault::FailBefore);
    let owner = operation();
    let owner = owner.run(&store, "k", || async {
        tokio::time::sleep(LEASE * 3).await;
        Ok::<_, Failure>(runs.run())
    });
    let rival = async {
        tokio::time::sleep(LEASE + LEASE / 2).await;
        operation().run(&store, "k", || async { Ok::<_, Failure>(runs.run()) }).await
    };
    let (owner, rival) = join(owner, rival).await;
    assert_eq!(rival.unwrap_err().kind(), "in_flight");
    assert_eq!(owner.unwrap(), 1);
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
