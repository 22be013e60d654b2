//! Tests of the layer around services of this process.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

use std::future::{pending, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idem::tower::{Error, IdempotentLayer};
use idem::{ErrorKind, MemoryStore, Operation, Store};
use serde::{Deserialize, Serialize};
use tower::{Service, ServiceBuilder, ServiceExt as _, service_fn};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
enum Refusal {
    #[error("try again")]
    Later,
    #[error("never")]
    Final,
}

/// A job: its key, and how its work ends.
type Job = (&'static str, Result<(), Refusal>);

#[derive(Clone, Default)]
struct Work(Arc<AtomicUsize>);

impl Work {
    fn runs(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// The idempotent service: a layer on `store` around a service that handles one job at a time.
    fn behind<St: Store>(
        &self,
        store: St,
    ) -> impl Service<Job, Response = usize, Error = Error<Refusal>, Future: Send> + Clone + Send + 'static
    {
        let operation = Operation::new("jobs")
            .terminal(|error: &Error<Refusal>| matches!(error, Error::Service(Refusal::Final)));
        let Self(runs) = self.clone();
        ServiceBuilder::new()
            .layer(IdempotentLayer::new(operation, store, |job: &Job| job.0))
            .concurrency_limit(1)
            .service(service_fn(move |(_, ending): Job| {
                let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
                ready(ending.map(|()| run))
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
    let (work, store) = (Work::default(), MemoryStore::new());
    let (one, other) = (work.behind(store.clone()), work.behind(store));
    assert_eq!(send(&one, ("a", Ok(()))).await.unwrap(), 1);
    assert_eq!(send(&one, ("a", Ok(()))).await.unwrap(), 1);
    assert_eq!(send(&other, ("a", Ok(()))).await.unwrap(), 1);
    assert_eq!(send(&other, ("b", Ok(()))).await.unwrap(), 2);
    assert_eq!(work.runs(), 2);
}

#[tokio::test]
async fn an_error_releases_the_key_a_final_one_is_kept_and_a_refusal_is_an_error_of_the_service() {
    let work = Work::default();
    let worker = work.behind(MemoryStore::new());
    for (ending, error) in
        [(Err(Refusal::Later), "try again"), (Err(Refusal::Final), "never"), (Ok(()), "never")]
    {
        assert_eq!(send(&worker, ("a", ending)).await.unwrap_err().to_string(), error);
    }
    let Err(Error::Idem(missing)) = send(&worker, ("", Ok(()))).await else { panic!("it has no key") };
    assert_eq!((missing.kind(), work.runs()), (ErrorKind::MissingKey, 2));
}

#[tokio::test]
async fn a_request_whose_future_is_dropped_is_processed_by_the_next_as_recovered() {
    let work = Work::default();
    let Work(runs) = work.clone();
    let jobs = ServiceBuilder::new()
        .layer(IdempotentLayer::new(Operation::new("jobs"), MemoryStore::new(), |_: &()| "a"))
        .service(service_fn(move |()| {
            let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
            async move {
                if run == 1 {
                    pending::<()>().await;
                }
                Ok::<_, Refusal>(idem::context().unwrap().recovered())
            }
        }));
    let mut dropped = Box::pin(jobs.clone().oneshot(()));
    let begun = async {
        while work.runs() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! { _ = &mut dropped => panic!("its first run does not end"), () = begun => {} }
    drop(dropped);
    assert!(idem::drain(Duration::from_secs(5)).await.is_complete());
    assert!(jobs.oneshot(()).await.unwrap());
}
