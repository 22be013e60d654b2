//! Tests of the layer around services of this process.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use idem::tower::{Error, IdempotentLayer};
use idem::{ErrorKind, MemoryStore, Operation, Store};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tower::{Service, ServiceBuilder, ServiceExt as _, service_fn};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
enum Refusal {
    #[error("try again")]
    Later,
    #[error("never")]
    Final,
}

/// A job: its key, and what becomes of it.
type Job = (&'static str, Result<(), Refusal>);

#[derive(Clone)]
struct Work {
    runs: Arc<AtomicUsize>,
    may_end: Arc<Semaphore>,
}

impl Work {
    fn new() -> Self {
        Self { runs: Arc::default(), may_end: Arc::new(Semaphore::new(100)) }
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    /// A worker that has one job at a time.
    fn behind<St: Store>(
        &self,
        store: St,
    ) -> impl Service<Job, Response = usize, Error = Error<Refusal>, Future: Send> + Clone + Send + 'static
    {
        let operation = Operation::new("jobs")
            .terminal(|error: &Error<Refusal>| matches!(error, Error::Service(Refusal::Final)));
        let work = self.clone();
        ServiceBuilder::new()
            .layer(IdempotentLayer::new(operation, store, |job: &Job| job.0))
            .concurrency_limit(1)
            .service(service_fn(move |job: Job| {
                let work = work.clone();
                async move {
                    let run = work.runs.fetch_add(1, Ordering::SeqCst) + 1;
                    work.may_end.acquire().await.unwrap().forget();
                    job.1.map(|()| run)
                }
            }))
    }
}

async fn send(
    worker: &(impl Service<Job, Response = usize, Error = Error<Refusal>> + Clone),
    job: Job,
) -> Result<usize, Error<Refusal>> {
    worker.clone().oneshot(job).await
}

#[tokio::test]
async fn a_repeated_request_gets_the_first_response_also_from_another_worker() {
    let (work, store) = (Work::new(), MemoryStore::new());
    let (one, other) = (work.behind(store.clone()), work.behind(store));
    assert_eq!(send(&one, ("a", Ok(()))).await.unwrap(), 1);
    assert_eq!(send(&one, ("a", Ok(()))).await.unwrap(), 1);
    assert_eq!(send(&other, ("a", Ok(()))).await.unwrap(), 1);
    assert_eq!(send(&other, ("b", Ok(()))).await.unwrap(), 2);
    assert_eq!(work.runs(), 2);
}

#[tokio::test]
async fn an_error_releases_the_key_and_a_final_one_is_kept() {
    let work = Work::new();
    let worker = work.behind(MemoryStore::new());
    for (ending, error) in
        [(Err(Refusal::Later), "try again"), (Err(Refusal::Final), "never"), (Ok(()), "never")]
    {
        assert_eq!(send(&worker, ("a", ending)).await.unwrap_err().to_string(), error);
    }
    assert_eq!(work.runs(), 2);
}

#[tokio::test]
async fn a_request_under_a_key_in_flight_is_refused_as_the_error_of_the_service() {
    let (work, store) = (Work::new(), MemoryStore::new());
    work.may_end.forget_permits(100);
    let (one, other) = (work.behind(store.clone()), work.behind(store));
    let first = send(&one, ("a", Ok(())));
    let second = async {
        while work.runs() == 0 {
            tokio::task::yield_now().await;
        }
        let refused = send(&other, ("a", Ok(()))).await;
        work.may_end.add_permits(1);
        refused
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!(first.unwrap(), 1);
    let Err(Error::Idem(refusal)) = second else { panic!("{second:?}") };
    assert_eq!((refusal.kind(), work.runs()), (ErrorKind::InFlight, 1));
    // A key that is empty is nobody's.
    let Err(Error::Idem(missing)) = send(&one, ("", Ok(()))).await else { panic!("it has no key") };
    assert_eq!(missing.kind(), ErrorKind::MissingKey);
}

#[tokio::test]
async fn a_request_whose_future_is_dropped_is_processed_by_the_next_as_recovered() {
    let (work, store) = (Work::new(), MemoryStore::new());
    work.may_end.forget_permits(100);
    let worker = work.behind(store);
    let mut dropped = Box::pin(send(&worker, ("a", Ok(()))));
    let begun = async {
        while work.runs() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! { _ = &mut dropped => panic!("it has no permit"), () = begun => {} }
    drop(dropped);
    assert!(idem::drain(std::time::Duration::from_secs(5)).await.is_complete());
    work.may_end.add_permits(1);
    assert_eq!(send(&worker, ("a", Ok(()))).await.unwrap(), 2);
}
