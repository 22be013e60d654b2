//! Idempotent calls for every tower service whose response can be serialized: a worker's jobs, a function of
//! AWS Lambda, a client of another service. For HTTP use `idem-http`, which keeps whole responses.
//!
//! [`IdempotentLayer`] has three parts: the policy (an [`Operation`]), a store, and a function that returns
//! the key of a request. The first request under a key is processed and its response is recorded; every other
//! request under this key gets that response.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! use std::convert::Infallible;
//! use std::time::Duration;
//!
//! use idem::tower::IdempotentLayer;
//! use idem::{MemoryStore, Operation};
//! use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
//!
//! #[derive(Clone)]
//! struct Job { order: u64, cents: u64 }
//!
//! let charge = Operation::new("jobs.charge").ttl(Duration::from_secs(7 * 24 * 60 * 60));
//! let mut worker = ServiceBuilder::new()
//!     .layer(IdempotentLayer::new(charge, MemoryStore::new(), |job: &Job| job.order))
//!     .service(service_fn(|job: Job| async move { Ok::<_, Infallible>(format!("charged {}", job.cents)) }));
//!
//! let job = Job { order: 42, cents: 1999 };
//! let receipt = worker.ready().await?.call(job.clone()).await?;
//! // The queue delivers the job again, and the service does not run.
//! assert_eq!(worker.ready().await?.call(job).await?, receipt);
//! # Ok(())
//! # }
//! ```
//!
//! An error of the service releases the key, unless the operation records the error: see
//! [`terminal`](Operation::terminal), [`record_if`](Operation::record_if) and
//! [`retry_after_error`](Operation::retry_after_error). Make the call within
//! [`observe`](idem_runtime::observe) to learn whether the response was replayed.

// Only tests may panic or print.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

use std::fmt;
use std::future::Future;
use std::mem::replace;
use std::pin::Pin;
use std::task::{Context, Poll};

use idem_core::{KeyPart, Store};
use idem_runtime::{Operation, ResultRules};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower_layer::Layer;
use tower_service::Service;

/// Makes each request of a service an idempotent call. See the [page of the crate](crate).
///
/// `K` is the function that returns the key of a request. The key is any [`KeyPart`]. An empty key is refused
/// with [`idem::Error::MissingKey`](idem_runtime::Error::MissingKey).
#[derive(Clone)]
pub struct IdempotentLayer<St, K, R = ()> {
    operation: Operation<R>,
    store: St,
    key: K,
}

impl<St, K, R> IdempotentLayer<St, K, R> {
    /// A layer with this policy, this store, and this function, which returns the key of a request.
    pub const fn new(operation: Operation<R>, store: St, key: K) -> Self {
        Self { operation, store, key }
    }
}

impl<St: fmt::Debug, K, R: fmt::Debug> fmt::Debug for IdempotentLayer<St, K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotentLayer").field("operation", &self.operation).finish_non_exhaustive()
    }
}

impl<S, St: Clone, K: Clone, R: Clone> Layer<S> for IdempotentLayer<St, K, R> {
    type Service = Idempotent<S, St, K, R>;

    fn layer(&self, inner: S) -> Self::Service {
        Idempotent { inner, layer: self.clone() }
    }
}

/// A service whose requests are idempotent calls, made by an [`IdempotentLayer`].
///
/// Dropping the future of a request also drops the future of the inner service. Then the operation's policy
/// decides whether the key is released or in doubt.
#[derive(Clone, Debug)]
pub struct Idempotent<S, St, K, R = ()> {
    inner: S,
    layer: IdempotentLayer<St, K, R>,
}

/// Implements `Service` for operations whose result rules have this type. One impl for all types is
/// impossible, because no bound can require that the future of an operation's `recover` is `Send`.
macro_rules! service {
    ($rules:ty) => {
        impl<S, St, K, P, Request> Service<Request> for Idempotent<S, St, K, $rules>
        where
            S: Service<Request, Future: Send> + Clone + Send + 'static,
            S::Response: Serialize + DeserializeOwned + Send + 'static,
            S::Error: Send + 'static,
            St: Store,
            K: Fn(&Request) -> P,
            P: KeyPart + 'static,
            Request: Send + 'static,
        {
            type Response = S::Response;
            type Error = Error<S::Error>;
            type Future = Pin<Box<dyn Future<Output = Result<S::Response, Error<S::Error>>> + Send>>;

            fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
                self.inner.poll_ready(cx).map_err(Error::Service)
            }

            fn call(&mut self, request: Request) -> Self::Future {
                // `self.inner` is ready, but a clone may not be. So this call takes `self.inner`, and the
                // clone stays.
                let clone = self.inner.clone();
                let mut inner = replace(&mut self.inner, clone);
                let key = (self.layer.key)(&request);
                let body = || async move { inner.call(request).await.map_err(Error::Service) };
                let call = self.layer.operation.run(&self.layer.store, key, body);
                Box::pin(call)
            }
        }
    };
}

service!(());
service!(ResultRules<S::Response, Error<S::Error>>);

/// Why a request has no response.
#[derive(Clone, Debug, thiserror::Error, Serialize, serde::Deserialize)]
pub enum Error<E> {
    /// The service's own error.
    #[error(transparent)]
    Service(E),
    /// The service did not run, or its response is unknown. For example, the key is in flight, in doubt or
    /// has no attempts left, or the store failed.
    #[error(transparent)]
    #[serde(skip)]
    Idem(#[from] idem_runtime::Error),
}
