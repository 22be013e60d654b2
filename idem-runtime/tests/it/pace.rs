//! Tests of how long an attempt may take, and when the next one is due.

use std::sync::Arc;
use std::time::Duration;

use idem::{Error, MemoryStore};
use idem_testing::FaultStore;
use tokio::time::{Instant, advance, sleep, timeout};

use crate::events::Events;
use crate::support::{Failure, LEASE, Runs, operation};

const LIMIT: Duration = Duration::from_secs(120);

#[tokio::test(start_paused = true)]
async fn a_body_that_hangs_is_dropped_after_its_timeout_and_the_next_run_is_told() {
    let (events, _guard) = Events::start();
    let (store, held) = (MemoryStore::new(), Arc::new(()));
    let started = Instant::now();
    let in_body = held.clone();
    let body = || async move {
        let _held = in_body;
        std::future::pending::<Result<usize, Failure>>().await
    };
    let timed_out = operation().timeout(LIMIT).run(&store, "k", body).await.unwrap_err();
    assert_eq!(started.elapsed().as_secs(), LIMIT.as_secs());
    assert_eq!(Arc::strong_count(&held), 1, "the body is gone");
    let Failure::Idem(error @ Error::TimedOut { after, .. }) = &timed_out else { panic!("{timed_out:?}") };
    assert_eq!((*after, error.kind().as_str(), error.is_retryable()), (LIMIT, "timed_out", true));
    assert_eq!(events.only("timed_out")[0], "WARN");
    let next =
        operation().run(&store, "k", || async { Ok::<_, Failure>(idem::context().unwrap().attempt()) });
    assert_eq!(next.await.unwrap(), 2);
}

/// In real time: the paused clock stands still while a task is ready. Such a body uses up its task's budget at each poll, and tokio's
/// timers are pending without a budget.
#[tokio::test]
async fn a_body_that_is_always_ready_ends_at_its_timeout() {
    async fn busy() -> Result<usize, Failure> {
        loop {
            tokio::task::consume_budget().await;
        }
    }
    let (store, down) = (FaultStore::new(MemoryStore::new()), FaultStore::new(MemoryStore::new()));
    down.down(true);
    for store in [store, down] {
        let operation = operation().fail_open().timeout(Duration::from_millis(50));
        let call = operation.run(&store, "k", busy);
        assert_eq!(
            timeout(Duration::from_secs(20), call).await.expect("it ends").unwrap_err().kind(),
            "timed_out"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_within_its_timeout_is_left_alone() {
    let store = MemoryStore::new();
    let body = || async {
        sleep(LIMIT - Duration::from_millis(1)).await;
        Ok::<_, Failure>(1)
    };
    assert_eq!(operation().timeout(LIMIT).run(&store, "k", body).await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_key_is_not_due_before_its_time_and_each_time_is_longer() {
    let (events, _guard) = Events::start();
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let operation = operation().retry_after(Duration::from_secs(10)..Duration::from_secs(60));
    let call = || {
        operation.run(&store, "k", || async {
            runs.run();
            Err::<usize, _>(Failure::Transient)
        })
    };
    for (attempt, longest) in [(1, 10), (2, 20), (3, 40), (4, 60), (5, 60)] {
        assert!(matches!(call().await, Err(Failure::Transient)));
        let refused = call().await.unwrap_err();
        let Failure::Idem(error @ Error::NotDue { retry_after, .. }) = &refused else {
            panic!("{refused:?}")
        };
        assert!(error.is_retryable());
        let (least, most) = (Duration::from_secs(longest) / 2, Duration::from_secs(longest));
        assert!((least..=most).contains(retry_after), "{attempt}: {retry_after:?}");
        assert_eq!(runs.count(), attempt);
        advance(*retry_after).await;
    }
    assert_eq!(events.names().iter().filter(|name| *name == "not_due").count(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_waits_until_the_key_is_due_and_says_that_it_is_not_where_that_is_too_long() {
    let store = MemoryStore::new();
    let operation = operation().retry_after(Duration::from_secs(10)).wait(Duration::from_secs(5));
    let fail = || async { Err::<usize, _>(Failure::Transient) };
    operation.run(&store, "k", fail).await.unwrap_err();
    let started = Instant::now();
    assert_eq!(operation.run(&store, "k", fail).await.unwrap_err().kind(), "not_due");
    assert_eq!(started.elapsed().as_secs(), 5);
    let patient = operation.clone().wait(LEASE);
    assert_eq!(patient.run(&store, "k", || async { Ok::<_, Failure>(1) }).await.unwrap(), 1);
    let waited = started.elapsed();
    assert!(waited >= Duration::from_secs(10) && waited < Duration::from_millis(10_500), "{waited:?}");
}

#[tokio::test]
async fn a_context_carries_the_call_into_a_task_and_no_further_than_its_end() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let late = std::sync::Mutex::new(None);
    let body = || async {
        let context = idem::context().unwrap();
        let (inner, runs) = (context.clone(), runs.clone());
        let step = async move {
            let key = idem::context().unwrap().key().clone();
            assert_eq!(&key, inner.key());
            idem::step("count", || async { Ok::<_, Failure>(runs.run()) }).await
        };
        let carried = context.clone();
        let counted = tokio::spawn(async move { carried.scope(step).await }).await.unwrap()?;
        let first = context.attempt() == 1;
        *late.lock().unwrap() = Some(context);
        if first { Err(Failure::Transient) } else { Ok(counted) }
    };
    assert!(matches!(operation().run(&store, "k", body).await, Err(Failure::Transient)));
    assert_eq!(operation().run(&store, "k", body).await.unwrap(), 1, "the step was recorded");
    assert_eq!(runs.count(), 1);
    let context = late.lock().unwrap().take().unwrap();
    let step = context.scope(idem::step("late", || async { Ok::<_, Failure>(runs.run()) })).await;
    assert_eq!(step.unwrap_err().kind(), "lease_lost");
    assert_eq!(runs.count(), 1, "a step of a call that is over does not run");
}
