//! Tests of steps: what a step records, what a rerun gets, and when a step is refused.

use crate::support;

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join3, select};
use idem::protocol::{Complete, RecordStep, RecordStepAnswer, RecordedStep, State, StoredResult, Verdict};
use idem::testing::{Fault, FaultStore, OperationKind};
use idem::{Error, MemoryStore, NotStored, OnCrash, Operation, Step, StepError, Store};
use support::{Failure, LEASE, Runs, crashed_worker, operation, record_key};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

fn faulty() -> FaultStore<MemoryStore> {
    FaultStore::new(MemoryStore::new())
}

/// The names of the recorded steps.
async fn recorded(store: &impl Store) -> Vec<String> {
    let record = store.get(&record_key("k")).await.unwrap();
    record.into_iter().flat_map(|record| record.steps).map(|step| step.name).collect()
}

async fn state(store: &impl Store) -> Option<State> {
    store.get(&record_key("k")).await.unwrap().map(|record| record.state)
}

/// A step that counts its runs.
async fn counted(name: &str, runs: &Runs) -> Result<usize, Failure> {
    idem::step(name, || async { Ok(runs.run()) }).await
}

/// Why a step gave no value.
fn reason(failure: Failure) -> StepError {
    match failure {
        Failure::Idem(Error::Step { source, .. }) => source,
        other => panic!("{other:?}"),
    }
}

/// Runs a call up to `point`, where its worker stops for good, and lets its lease run out.
async fn killed_at(point: &Notify, call: impl Future<Output = Result<usize, Failure>>) {
    let mut call = Box::pin(call);
    assert!(matches!(
        select(call.as_mut(), pin!(point.notified())).await,
        futures_util::future::Either::Right(_)
    ));
    std::mem::forget(call);
    tokio::time::advance(LEASE).await;
}

#[tokio::test(start_paused = true)]
async fn a_rerun_after_a_crash_is_given_what_was_recorded_and_runs_the_rest() {
    let (store, point) = (MemoryStore::new(), Notify::new());
    let (reserved, charged) = (Runs::default(), Runs::default());
    let body = |dies: bool| {
        let (reserved, charged, point) = (&reserved, &charged, &point);
        async move {
            let place = counted("reserve", reserved).await?;
            if dies {
                point.notify_one();
                std::future::pending::<()>().await;
            }
            Ok::<_, Failure>(place + 10 * counted("charge", charged).await?)
        }
    };
    killed_at(&point, operation().run(&store, "k", || body(true))).await;
    assert_eq!(recorded(&store).await, ["reserve"]);
    assert_eq!(operation().run(&store, "k", || body(false)).await.unwrap(), 11);
    assert_eq!((reserved.count(), charged.count()), (1, 1));
    assert_eq!(recorded(&store).await, [""; 0], "the result needs the room");
    assert_eq!(operation().run(&store, "k", || body(false)).await.unwrap(), 11);
}

#[tokio::test]
async fn a_rerun_after_an_error_and_after_a_panic_is_given_what_was_recorded() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let failing = || async {
        counted("a", &runs).await?;
        Err::<usize, _>(Failure::Transient)
    };
    operation().run(&store, "k", failing).await.unwrap_err();
    let panicking = || async {
        counted("a", &runs).await?;
        counted("b", &runs).await?;
        if runs.count() == 2 {
            panic!("a bug");
        }
        Ok::<usize, Failure>(0)
    };
    let panicked = std::panic::AssertUnwindSafe(operation().run(&store, "k", panicking));
    assert!(futures_util::FutureExt::catch_unwind(panicked).await.is_err());
    let ending = || async { Ok::<_, Failure>(counted("b", &runs).await? + 10 * counted("a", &runs).await?) };
    assert_eq!(operation().run(&store, "k", ending).await.unwrap(), 12, "by name, whatever the order");
    assert_eq!(runs.count(), 2);
}

#[tokio::test]
async fn a_step_that_failed_is_not_recorded_and_may_be_tried_again_at_once() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let call = operation().run(&store, "k", || async {
        let failed = idem::step("a", || async { Err::<usize, _>(Failure::Transient) }).await;
        assert!(matches!(failed, Err(Failure::Transient)));
        assert_eq!(recorded(&store).await, [""; 0]);
        counted("a", &runs).await
    });
    assert_eq!(call.await.unwrap(), 1);
}

#[tokio::test]
async fn the_first_attempt_reads_nothing_and_a_rerun_reads_once() {
    let (store, runs) = (faulty(), Runs::default());
    let body = |ends: bool| {
        let runs = &runs;
        async move {
            counted("a", runs).await?;
            counted("b", runs).await?;
            if ends { Ok(0) } else { Err(Failure::Transient) }
        }
    };
    operation().run(&store, "k", || body(false)).await.unwrap_err();
    assert_eq!((store.asked(OperationKind::Get), store.asked(OperationKind::RecordStep)), (0, 2));
    operation().run(&store, "k", || async { Err::<usize, _>(Failure::Transient) }).await.unwrap_err();
    assert_eq!(store.asked(OperationKind::Get), 0, "a body without steps reads nothing");
    operation().run(&store, "k", || body(true)).await.unwrap();
    assert_eq!((store.asked(OperationKind::Get), store.asked(OperationKind::RecordStep)), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_value_is_given_only_once_the_store_has_acknowledged_its_record() {
    let store = faulty();
    store.next(OperationKind::RecordStep, Fault::FailBefore);
    store.next(OperationKind::RecordStep, Fault::FailAfter);
    store.next(OperationKind::RecordStep, Fault::DelayAfter(Duration::from_secs(3)));
    let began = Instant::now();
    let call = operation().run(&store, "k", || async {
        let value = idem::step("a", || async { Ok::<_, Failure>(7) }).await?;
        assert!(began.elapsed() >= Duration::from_secs(3));
        assert_eq!(recorded(store.inner()).await, ["a"], "once, though it was asked three times");
        Ok::<_, Failure>(value)
    });
    assert_eq!(call.await.unwrap(), 7);
    assert_eq!(store.asked(OperationKind::RecordStep), 3);
}

#[tokio::test]
async fn a_name_that_this_run_has_had_is_refused_before_it_runs() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let body = || async {
        counted("a", &runs).await?;
        let again = reason(counted("a", &runs).await.unwrap_err());
        assert!(matches!(again, StepError::Repeated));
        Err::<usize, _>(Failure::Transient)
    };
    operation().run(&store, "k", body).await.unwrap_err();
    // Also if both results come from the record.
    operation().run(&store, "k", body).await.unwrap_err();
    let both = operation().run(&store, "k", || async {
        let (one, other) = join(counted("b", &runs), counted("b", &runs)).await;
        assert!(one.is_ok() && matches!(reason(other.unwrap_err()), StepError::Repeated));
        Ok::<_, Failure>(0)
    });
    both.await.unwrap();
    assert_eq!(runs.count(), 2);
}

#[tokio::test]
async fn a_loop_names_its_steps_by_an_index() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let body = |lines: usize, ends: bool| {
        let runs = &runs;
        async move {
            let mut sum = 0;
            for line in 0..lines {
                sum += idem::step(("line", line), || async { Ok::<_, Failure>(runs.run()) }).await?;
            }
            if ends { Ok(sum) } else { Err(Failure::Transient) }
        }
    };
    operation().run(&store, "k", || body(400, false)).await.unwrap_err();
    assert_eq!(recorded(&store).await[399], "line[399]");
    assert_eq!(operation().run(&store, "k", || body(500, true)).await.unwrap(), 500 * 501 / 2);
    assert_eq!(runs.count(), 500);
}

#[tokio::test]
async fn a_name_that_cannot_be_used_is_refused_and_any_other_text_is_a_name() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let long = "n".repeat(idem::MAX_STEP_NAME_BYTES);
    let call = operation().run(&store, "k", || async {
        for bad in ["", &format!("{long}n")] {
            let refused = counted(bad, &runs).await.unwrap_err();
            assert_eq!(refused.kind(), "configuration");
        }
        for good in [long.as_str(), " ", "\0", "ключ", "a\n\"b\""] {
            counted(good, &runs).await?;
        }
        let refused = counted("a\n\"b\"", &runs).await.unwrap_err().to_string();
        assert!(refused.contains(r#"step "a\n\"b\"""#), "{refused}");
        Ok::<_, Failure>(0)
    });
    call.await.unwrap();
    assert_eq!(runs.count(), 5);
    assert_eq!(counted("", &runs).await.unwrap_err().kind(), "configuration", "outside a call too");
}

#[tokio::test]
async fn a_step_recorded_for_another_input_is_refused_before_it_runs() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let charge = |amount: Option<u64>| {
        let runs = &runs;
        async move {
            let step = Step::new("charge");
            let step = if let Some(amount) = amount { step.fingerprint(&amount) } else { step };
            step.run(|| async { Ok::<_, Failure>(runs.run()) }).await
        }
    };
    let call = async |amount| {
        let body = || async {
            assert_eq!(charge(amount).await?, 1);
            Err::<usize, _>(Failure::Transient)
        };
        operation().run(&store, "k", body).await.unwrap_err()
    };
    assert!(matches!(call(Some(1)).await, Failure::Transient));
    assert!(matches!(reason(call(Some(2)).await), StepError::InputChanged));
    for same in [Some(1), None] {
        assert!(matches!(call(same).await, Failure::Transient));
    }
    let unspeakable = operation().run(&store, "k", || async {
        Step::new("charge").fingerprint(&f64::NAN).run(|| async { Ok::<_, Failure>(runs.run()) }).await
    });
    assert_eq!(unspeakable.await.unwrap_err().kind(), "configuration");
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn a_recorded_value_that_does_not_decode_is_kept_and_never_run_again() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let old = || async {
        idem::step("a", || async { Ok::<_, Failure>("text".to_owned()) }).await?;
        Err::<usize, _>(Failure::Transient)
    };
    operation().run(&store, "k", old).await.unwrap_err();
    for _ in 0..2 {
        let failed = operation().run(&store, "k", || counted("a", &runs)).await.unwrap_err();
        assert_eq!(failed.kind(), "step_undecodable");
    }
    assert_eq!((runs.count(), recorded(&store).await), (0, vec!["a".to_owned()]));
}

#[tokio::test]
async fn a_value_that_is_too_large_or_does_not_encode_is_given_once_and_never_made_again() {
    let runs = Runs::default();
    let large = || async {
        runs.run();
        Ok::<_, Failure>("x".repeat(100))
    };
    let small = operation().max_result_bytes(50);
    for (operation, store) in
        [(small, MemoryStore::new()), (operation(), MemoryStore::with_max_result_bytes(50))]
    {
        let body = || async {
            assert_eq!(idem::step("a", large).await?.len(), 100);
            Err::<usize, _>(Failure::Transient)
        };
        operation.run(&store, "k", body).await.unwrap_err();
        let again = reason(operation.run(&store, "k", body).await.unwrap_err());
        assert!(matches!(again, StepError::NotStored(NotStored::TooLarge)), "{again:?}");
    }
    assert_eq!(runs.count(), 2);

    let store = MemoryStore::new();
    let unspeakable = || async {
        let map =
            idem::step("a", || async { Ok::<_, Failure>(std::collections::BTreeMap::from([((1, 2), 3)])) });
        assert_eq!(map.await?.len(), 1);
        Err::<usize, _>(Failure::Transient)
    };
    assert!(matches!(operation().run(&store, "k", unspeakable).await, Err(Failure::Transient)));
    let again = reason(operation().run(&store, "k", unspeakable).await.unwrap_err());
    assert!(matches!(again, StepError::NotStored(NotStored::NotEncodable)), "{again:?}");
}

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

/// Has another worker, with a step of its own, take over the claim of the running body.
async fn taken_over(store: &MemoryStore) {
    store.forget(&record_key("k")).await.unwrap();
    let (owner, grant) = crashed_worker(store, "k", OnCrash::Rerun).await;
    let step = RecordedStep::new("theirs".into(), None, StoredResult::Value("1".into()));
    let request = RecordStep::new(owner, grant.fence, 0, step);
    let answer = store.record_step(&record_key("k"), &request).await.unwrap();
    assert_eq!(answer, RecordStepAnswer::Recorded);
}

#[tokio::test(start_paused = true)]
async fn a_step_of_a_worker_that_was_taken_over_is_not_recorded_and_its_body_goes_no_further() {
    let (store, went_on) = (MemoryStore::new(), Cell::new(false));
    let call = operation().run(&store, "k", || async {
        let step = idem::step("mine", || async {
            taken_over(&store).await;
            Ok::<_, Failure>(7)
        });
        let given = step.await;
        went_on.set(true);
        given
    });
    assert_eq!(call.await.unwrap_err().kind(), "lease_lost");
    assert!(!went_on.get());
    assert_eq!(recorded(&store).await, ["theirs"]);
}

#[tokio::test(start_paused = true)]
async fn a_rerun_that_was_taken_over_before_its_first_step_runs_none() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    operation().run(&store, "k", || async { Err::<usize, _>(Failure::Transient) }).await.unwrap_err();
    let call = operation().run(&store, "k", || async {
        taken_over(&store).await;
        counted("mine", &runs).await
    });
    assert_eq!(call.await.unwrap_err().kind(), "lease_lost");
    assert_eq!(runs.count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_body_that_holds_on_to_its_thread_is_told_that_its_lease_is_lost() {
    let store = MemoryStore::new();
    let told = Arc::new(std::sync::Mutex::new(None));
    let call = operation().run(&store, "k", || async {
        taken_over(&store).await;
        let runtime = tokio::runtime::Handle::current();
        let step = idem::step("mine", || async { Ok::<_, Failure>(7) });
        let given = tokio::task::block_in_place(|| runtime.block_on(step));
        *told.lock().unwrap() = Some(given.as_ref().unwrap_err().kind());
        given
    });
    call.await.unwrap_err();
    assert_eq!(*told.lock().unwrap(), Some("lease_lost"));
}

#[tokio::test(start_paused = true)]
async fn a_step_that_is_dropped_while_it_is_recorded_is_recorded_before_the_next_begins() {
    let (store, runs) = (faulty(), Runs::default());
    store.next(OperationKind::RecordStep, Fault::HangAfter);
    let call = operation().run(&store, "k", || async {
        assert!(timeout(Duration::from_millis(1), counted("a", &runs)).await.is_err());
        assert_eq!(counted("b", &runs).await?, 2);
        assert_eq!(recorded(&store).await, ["a", "b"]);
        // Nobody has received its value yet.
        assert_eq!(counted("a", &runs).await?, 1);
        assert!(matches!(reason(counted("a", &runs).await.unwrap_err()), StepError::Repeated));
        Ok::<_, Failure>(0)
    });
    call.await.unwrap();
    assert_eq!(runs.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_step_that_nobody_polls_any_more_does_not_keep_another_waiting() {
    let (store, runs) = (faulty(), Runs::default());
    store.next(OperationKind::RecordStep, Fault::DelayBefore(Duration::from_secs(2)));
    let call = operation().run(&store, "k", || async {
        let mut a = pin!(counted("a", &runs));
        assert!(timeout(Duration::from_millis(1), a.as_mut()).await.is_err());
        assert_eq!(
            timeout(Duration::from_secs(5), counted("b", &runs)).await.expect("it waits for ever")?,
            2
        );
        assert_eq!(a.await?, 1);
        Ok::<_, Failure>(0)
    });
    call.await.unwrap();
    assert_eq!((runs.count(), store.asked(OperationKind::RecordStep)), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn steps_that_run_at_once_are_recorded_in_the_order_in_which_they_end() {
    let store = faulty();
    store.next(OperationKind::RecordStep, Fault::FailAfter);
    let slow = |name: &'static str, seconds: u64| {
        idem::step(name, move || async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok::<_, Failure>(seconds)
        })
    };
    let call = operation().run(&store, "k", || async {
        let (c, a, b) = join3(slow("c", 3), slow("a", 1), slow("b", 1)).await;
        assert_eq!((a?, b?, c?), (1, 1, 3));
        assert_eq!(recorded(&store).await, ["a", "b", "c"]);
        Ok::<_, Failure>(0)
    });
    call.await.unwrap();
}

#[tokio::test]
async fn a_step_inside_a_step_is_refused_and_a_call_inside_one_has_steps_of_its_own() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let call = operation().run(&store, "k", || async {
        idem::step("outer", || async {
            assert!(matches!(reason(counted("inner", &runs).await.unwrap_err()), StepError::Nested));
            let inner = Operation::new("inner").run(&store, "i", || async {
                assert_eq!(counted("outer", &runs).await?, 1);
                Ok::<_, Failure>(0)
            });
            inner.await
        })
        .await?;
        // It is over, so the next step is not nested in it.
        counted("next", &runs).await
    });
    assert_eq!(call.await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_callers_step_is_recorded_before_its_key_is_given_back() {
    let (store, runs) = (faulty(), Runs::default());
    store.next(OperationKind::RecordStep, Fault::HangBefore);
    let call = operation().run(&store, "k", || counted("a", &runs));
    assert!(timeout(Duration::from_secs(1), call).await.is_err());
    let again = operation().wait(LEASE).run(&store, "k", || counted("a", &runs));
    assert_eq!(again.await.unwrap(), 1);
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

#[tokio::test]
async fn a_step_that_outlives_its_call_is_refused() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let gate = Notify::new();
    let late = std::cell::RefCell::new(None);
    let call = operation().run(&store, "k", || async {
        let mut step = Box::pin(idem::step("a", || async {
            gate.notified().await;
            Ok::<_, Failure>(runs.run())
        }));
        assert!(futures_util::FutureExt::now_or_never(step.as_mut()).is_none());
        *late.borrow_mut() = Some(step);
        Ok::<_, Failure>(0)
    });
    call.await.unwrap();
    gate.notify_one();
    let late = late.borrow_mut().take().unwrap();
    assert_eq!(late.await.unwrap_err().kind(), "lease_lost");
    assert_eq!(state(&store).await, Some(State::Completed));
}

#[tokio::test]
async fn what_a_step_holds_is_in_no_debug_text() {
    let step = format!("{:?}", Step::new("charge").fingerprint("4711 4711 4711"));
    assert!(step.contains("charge"), "{step}");
    let other = format!("{:?}", Step::new("charge").fingerprint("4712"));
    assert_eq!(step, other);
}

#[tokio::test]
async fn a_result_recorded_over_unrecorded_steps_replays() {
    // A worker of an older version takes over and completes: its record is like any other.
    let (store, runs) = (MemoryStore::new(), Runs::default());
    operation()
        .run(&store, "k", || async {
            counted("a", &runs).await?;
            Err::<usize, _>(Failure::Transient)
        })
        .await
        .unwrap_err();
    let (owner, grant) = crashed_worker(&store, "k", OnCrash::Rerun).await;
    let complete =
        Complete::new(owner, grant.fence, Verdict::Completed, StoredResult::Value("9".into()), LEASE);
    store.complete(&record_key("k"), &complete).await.unwrap();
    assert_eq!(operation().run(&store, "k", || counted("a", &runs)).await.unwrap(), 9);
}
