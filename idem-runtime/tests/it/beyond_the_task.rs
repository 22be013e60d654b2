//! Tests of work that a body starts outside its own task: how such work learns that the claim is gone. Also
//! tests of steps that nothing records: where such a step is an error, and where it runs.

use std::sync::Mutex;
use std::time::Duration;

use idem::{MemoryStore, Store as _};
use idem_testing::FaultStore;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{Failure, LEASE, Runs, operation, record_key};

const SECOND: Duration = Duration::from_secs(1);

/// Starts a task outside the body. The task ends when the claim is gone, and returns the time at which it
/// ended.
fn outside() -> JoinHandle<Instant> {
    let lost = idem::context().unwrap().lease_lost();
    tokio::spawn(async move {
        lost.await;
        Instant::now()
    })
}

#[tokio::test(start_paused = true)]
async fn work_outside_the_body_is_told_when_the_claim_is_lost() {
    let (store, begun) = (MemoryStore::new(), Mutex::new(None));
    let call = operation().run(&store, "k", || async {
        let two = [outside(), outside()];
        sleep(LEASE * 2).await;
        assert!(!two.iter().any(JoinHandle::is_finished), "the lease is renewed");
        store.forget(&record_key("k")).await.unwrap();
        *begun.lock().unwrap() = Some((two, Instant::now()));
        sleep(LEASE * 20).await;
        Ok::<_, Failure>(())
    });
    assert_eq!(call.await.unwrap_err().kind(), "lease_lost");
    let (two, lost) = begun.lock().unwrap().take().unwrap();
    for task in two {
        let when = timeout(SECOND, task).await.expect("it is told").unwrap();
        assert!(
            when - lost <= LEASE,
            "it is told at the next renewal, and not when the body would have ended"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn work_outside_the_body_is_told_when_the_call_ends_in_whatever_way() {
    let store = MemoryStore::new();
    let begun = Mutex::new(None);
    let begin = || *begun.lock().unwrap() = Some((outside(), idem::context().unwrap()));
    let ended = async |how: &str| {
        let (outside, context) = begun.lock().unwrap().take().unwrap();
        timeout(SECOND, outside).await.unwrap_or_else(|_| panic!("{how}: it was not told")).unwrap();
        timeout(SECOND, context.lease_lost())
            .await
            .unwrap_or_else(|_| panic!("{how}: who asks later is not"));
    };
    let returns = || async {
        begin();
        yield_now().await;
        assert!(!begun.lock().unwrap().as_ref().unwrap().0.is_finished());
        Ok::<_, Failure>(())
    };
    operation().run(&store, "returns", returns).await.unwrap();
    ended("a result").await;
    let fails = || async {
        begin();
        Err::<(), _>(Failure::Transient)
    };
    operation().run(&store, "fails", fails).await.unwrap_err();
    ended("an error").await;
    let hangs = || async {
        begin();
        std::future::pending::<Result<(), Failure>>().await
    };
    let timed_out = operation().timeout(SECOND).run(&store, "hangs", hangs).await.unwrap_err();
    assert_eq!(timed_out.kind(), "timed_out");
    ended("a timeout").await;
    assert!(timeout(SECOND, operation().run(&store, "dropped", hangs)).await.is_err());
    ended("a dropped caller").await;
}

#[tokio::test(start_paused = true)]
async fn a_timeout_comes_in_time_and_tells_work_outside_at_once_also_where_the_store_is_away() {
    let store = FaultStore::new(MemoryStore::new());
    let begun = Mutex::new(None);
    let hangs = || async {
        *begun.lock().unwrap() = Some(outside());
        store.down(true);
        std::future::pending::<Result<(), Failure>>().await
    };
    let started = Instant::now();
    operation().timeout(SECOND).run(&store, "k", hangs).await.unwrap_err();
    let task = begun.lock().unwrap().take().unwrap();
    let after = task.await.unwrap() - started;
    assert!((SECOND..=SECOND + Duration::from_millis(10)).contains(&after), "{after:?}");
}

fn step(runs: &Runs) -> impl Future<Output = Result<usize, Failure>> + use<> {
    let runs = runs.clone();
    idem::step("count", async move || Ok(runs.run()))
}

fn is_outside_of_any_call(refused: &Failure) {
    assert_eq!(refused.kind(), "configuration");
    let text = refused.to_string();
    assert!(text.contains("in the body of an idempotent call") && text.contains("Context::scope"), "{text}");
}

#[tokio::test]
async fn in_a_spawned_task_a_step_runs_only_where_the_call_was_carried_into_it() {
    let (store, runs) = (FaultStore::new(MemoryStore::new()), Runs::default());
    is_outside_of_any_call(&step(&runs).await.unwrap_err());
    let operation = operation().fail_open();
    for (key, steps) in [("guarded", 1), ("unprotected", 2)] {
        store.down(key == "unprotected");
        let call = operation.run(&store, key, || async {
            is_outside_of_any_call(&tokio::spawn(step(&runs)).await.unwrap().unwrap_err());
            let (context, step) = (idem::context().unwrap(), step(&runs));
            tokio::spawn(async move { context.scope(step).await }).await.unwrap()
        });
        assert_eq!(call.await.unwrap(), steps);
    }
}
