//! Tests of runs whose outcome is unknown, and of workers that are alive while their key is in doubt.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join;
use idem::protocol::{ReleaseCause, Resolution, State};
use idem::{Error, Loss, MemoryStore, OnCrash, Operation, Recovery, Store as _};
use idem_testing::{Fault, FaultStore, OperationKind};
use tokio::time::{advance, sleep, timeout};

use crate::events::Events;
use crate::support::{Failure, LEASE, Runs, completion, crashed_worker, operation, record_key};

async fn state(store: &MemoryStore) -> Option<State> {
    store.get(&record_key("k")).await.unwrap().map(|record| record.state)
}

/// Runs a body that takes longer than an outage of its store. Another call finds its lease lapsed meanwhile.
async fn outlives(
    operation: Operation,
    ends: impl AsyncFnOnce() -> Result<usize, Failure>,
) -> (MemoryStore, Result<usize, Failure>) {
    let store = FaultStore::new(MemoryStore::new());
    store.always(OperationKind::Renew, Fault::FailBefore);
    let call = operation.run(&store, "k", || async {
        sleep(LEASE * 2).await;
        ends().await
    });
    let rival = async {
        sleep(LEASE + Duration::from_secs(1)).await;
        let refused = operation.run(&store, "k", || async { Ok::<_, Failure>(9) }).await;
        assert_eq!(refused.unwrap_err().kind(), "in_doubt");
        store.always(OperationKind::Renew, None);
    };
    let (ended, ()) = join(call, rival).await;
    (store.inner().clone(), ended)
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_alive_in_doubt_goes_on_and_its_result_counts() {
    let (events, _guard) = Events::start();
    let cautious = operation().on_crash(OnCrash::InDoubt);
    let (store, ended) =
        outlives(cautious, async || idem::step("charge", || async { Ok::<_, Failure>(7) }).await).await;
    assert_eq!(ended.unwrap(), 7);
    assert_eq!(state(&store).await, Some(State::Completed));
    assert_eq!(events.only("held_in_doubt")[0], "WARN");
    assert!(!events.names().contains(&"lease_lost".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn an_error_of_a_worker_that_is_alive_in_doubt_is_known_and_ends_the_doubt() {
    let cautious = operation().on_crash(OnCrash::InDoubt);
    let (store, ended) = outlives(cautious, async || Err(Failure::Transient)).await;
    assert!(matches!(ended, Err(Failure::Transient)));
    assert_eq!(state(&store).await, Some(State::Released));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_lost_says_what_became_of_it() {
    for case in 0..4 {
        let store = MemoryStore::new();
        let call = operation().run(&store, "k", || async {
            store.forget(&record_key("k")).await.unwrap();
            match case {
                0 => {}
                1 => drop(crashed_worker(&store, "k", OnCrash::Rerun).await),
                2 => {
                    let (owner, grant) = crashed_worker(&store, "k", OnCrash::Rerun).await;
                    let failed = idem::protocol::Release::new(owner, grant.fence, ReleaseCause::Failed);
                    store.release(&record_key("k"), &failed).await.unwrap();
                }
                _ => {
                    let (owner, grant) = crashed_worker(&store, "k", OnCrash::InDoubt).await;
                    let gone = idem::protocol::Release::new(owner, grant.fence, ReleaseCause::Abandoned);
                    store.release(&record_key("k"), &gone).await.unwrap();
                }
            }
            std::future::pending::<Result<usize, Failure>>().await
        });
        let lost = call.await.unwrap_err();
        let expected = match case {
            0 => Some(Loss::Forgotten),
            1 => Some(Loss::TakenOver),
            2 => Some(Loss::Released),
            _ => None,
        };
        match (&lost, expected) {
            (Failure::Idem(Error::LeaseLost { loss, .. }), Some(expected)) => assert_eq!(*loss, expected),
            (Failure::Idem(Error::InDoubt { .. }), None) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_lost_to_a_result_gives_it_and_reports_no_loss() {
    let (events, _guard) = Events::start();
    let store = MemoryStore::new();
    let call = operation().run(&store, "k", || async {
        store.forget(&record_key("k")).await.unwrap();
        let (owner, grant) = crashed_worker(&store, "k", OnCrash::Rerun).await;
        store.complete(&record_key("k"), &completion(owner, grant, "7")).await.unwrap();
        std::future::pending::<Result<usize, Failure>>().await
    });
    assert_eq!(call.await.unwrap(), 7);
    assert_eq!(events.names(), ["claimed", "replayed"]);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_caller_a_panic_and_a_timeout_leave_an_unknown_outcome_and_an_error_leaves_a_known_one() {
    for (case, on_crash) in (0..4).flat_map(|case| [(case, OnCrash::Rerun), (case, OnCrash::InDoubt)]) {
        let store = MemoryStore::new();
        let operation = operation().on_crash(on_crash);
        let call = operation.clone().timeout(LEASE * 10).run(&store, "k", || async {
            match case {
                0 => Err(Failure::Transient),
                1 => panic!("a bug in the body"),
                _ => std::future::pending::<Result<usize, Failure>>().await,
            }
        });
        let patience = if case == 2 { Duration::from_secs(1) } else { LEASE * 20 };
        let ended = timeout(patience, AssertUnwindSafe(call).catch_unwind()).await;
        assert!(!matches!(ended, Ok(Ok(Ok(_)))));
        if case != 0 && on_crash == OnCrash::InDoubt {
            assert_eq!(state(&store).await, Some(State::InDoubt), "{case}");
            continue;
        }
        // Another call runs at once.
        assert_eq!(state(&store).await, Some(State::Released), "{case}");
        let next = operation.run(&store, "k", || async {
            let context = idem::context().unwrap();
            Ok::<_, Failure>((context.attempt(), context.recovered()))
        });
        assert_eq!(next.await.unwrap(), (2, case != 0), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn past_the_limit_of_attempts_recover_is_asked_and_no_body_runs() {
    for found in [Some(70), None] {
        let (store, asked, runs) = (MemoryStore::new(), Runs::default(), Runs::default());
        let operation = operation().max_attempts(1).recover(|_: Recovery| {
            asked.run();
            async move { Ok::<_, Failure>(found) }
        });
        crashed_worker(&store, "k", OnCrash::Rerun).await;
        advance(LEASE).await;
        let call = || operation.run(&store, "k", || async { Ok::<_, Failure>(runs.run()) });
        match found {
            Some(found) => assert_eq!(call().await.unwrap(), found),
            None => {
                let refused = call().await.unwrap_err();
                assert!(
                    matches!(refused, Failure::Idem(Error::Exhausted { attempts: 1, .. })),
                    "{refused:?}"
                );
                assert_eq!(call().await.unwrap_err().kind(), "exhausted");
            }
        }
        assert_eq!((asked.count(), runs.count()), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_doubt_that_an_operator_settled_is_not_the_workers_any_more() {
    let store = FaultStore::new(MemoryStore::new());
    store.always(OperationKind::Renew, Fault::FailBefore);
    let cautious = operation().on_crash(OnCrash::InDoubt);
    let call = cautious.run(&store, "k", || async {
        sleep(LEASE * 4).await;
        Ok::<_, Failure>(1)
    });
    let operator = async {
        sleep(LEASE + Duration::from_secs(1)).await;
        cautious.run(&store, "k", || async { Ok::<_, Failure>(9) }).await.unwrap_err();
        store.inner().resolve(&record_key("k"), &Resolution::Release).await.unwrap();
        store.always(OperationKind::Renew, None);
    };
    let (ended, ()) = join(call, operator).await;
    let lost = ended.unwrap_err();
    assert!(matches!(lost, Failure::Idem(Error::LeaseLost { loss: Loss::Released, .. })), "{lost:?}");
}
