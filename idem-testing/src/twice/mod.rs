//! Repeats each request, message or call of a user's own test, and fails the test if something was done
//! twice.
//!
//! Owns the settings. `repetition` repeats and checks; `service`, `grpc`, `consumer` and `function` say what
//! is repeated.

#[cfg(feature = "message")]
mod consumer;
mod function;
#[cfg(feature = "tonic")]
mod grpc;
mod repetition;
#[cfg(feature = "http")]
mod service;

use std::future::ready;
use std::marker::PhantomData;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};

#[cfg(feature = "tonic")]
pub use grpc::Grpc;
use repetition::Proof;

/// Wraps a service such as an axum `Router`, a consumer or a closure, to test it: see [`Twice`].
pub fn twice<S>(inner: S) -> Twice<S> {
    Twice {
        inner,
        effects: Arc::new(|| ready(0).boxed()),
        #[cfg(feature = "http")]
        header: http::HeaderName::from_static("idempotency-key"),
        breaks: 16,
        proof: Arc::default(),
        kind: PhantomData,
    }
}

/// Repeats what a test does with a service, a consumer or a function, and gives the test one answer.
/// [`twice`] makes a `Twice`.
///
/// 1. Two requests arrive at the same time. Their connections break as soon as their handlers wait. Then two
///    more requests arrive, and their connections break one wait later. This goes on until a request is
///    answered, or until 16 pairs are dropped. So a handler is dropped at each of its first awaits, unless it
///    runs in a task of its own.
/// 2. The request arrives once more, as if its client had never read the answer.
///
/// All answers must be the same, except those after which a client may try again: 401, 403, 407, 408, 425,
/// 429 and 5xx. While the key is in flight (409 with `Retry-After`, or the 202 of a long operation), the
/// request is repeated. [`effects`](Self::effects) may rise by one. Requests without the header pass
/// unchanged.
///
/// | wrapped | repeated |
/// |---|---|
/// | a tower service (feature `http`) | each request with an `Idempotency-Key`, all with that key |
/// | the same with `grpc` (feature `tonic`) | each unary call with that metadata; `OK`, `INVALID_ARGUMENT`, `NOT_FOUND`, `ALREADY_EXISTS`, `FAILED_PRECONDITION` and `OUT_OF_RANGE` are answers |
/// | a `Consumer` (feature `message`) | each message, with `run`; it is acknowledged each time, or rejected each time |
/// | a closure that makes a call | the call, with [`answer`](Self::answer); each `Ok` and each terminal error must be the same |
///
/// ```
/// # use std::sync::Arc;
/// # use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// # use bytes::Bytes;
/// # use http::{Request, Response};
/// # use http_body_util::Full;
/// # use tower_service::Service as _;
/// # #[derive(Clone)] struct Router(Arc<AtomicU64>);
/// # impl tower_service::Service<Request<Full<Bytes>>> for Router {
/// #     type Response = Response<Full<Bytes>>;
/// #     type Error = std::convert::Infallible;
/// #     type Future = std::future::Ready<Result<Self::Response, Self::Error>>;
/// #     fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
/// #         std::task::Poll::Ready(Ok(()))
/// #     }
/// #     fn call(&mut self, _: Request<Full<Bytes>>) -> Self::Future {
/// #         self.0.store(1, Relaxed);
/// #         std::future::ready(Ok(Response::default()))
/// #     }
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let charges = Arc::new(AtomicU64::new(0));
/// # let router = Router(charges.clone());
/// let mut app = idem_testing::twice(router).effects(move || {
///     let charges = charges.clone();
///     async move { charges.load(Relaxed) } // or a `SELECT count(*)`
/// });
/// let request = Request::post("/payments").header("Idempotency-Key", "k-1").body("7".into()).unwrap();
/// assert_eq!(app.call(request).await.unwrap().status(), 200);
/// # }
/// ```
///
/// # Panics
///
/// The future of a request panics if its handler did something twice or gave another answer the second time.
/// The message names the method, the path and the difference.
///
/// The drop of the last clone panics if nothing was checked. A request is checked if it has a key, and if it
/// raises the effects or makes an idempotent call in the task of the test.
#[derive(Clone)]
pub struct Twice<S, K = ()> {
    inner: S,
    effects: Arc<dyn Fn() -> BoxFuture<'static, u64> + Send + Sync>,
    #[cfg(feature = "http")]
    header: http::HeaderName,
    /// At most this many pairs of runs are dropped, each pair one wait later than the pair before.
    breaks: usize,
    proof: Arc<Proof>,
    kind: PhantomData<K>,
}

impl<S, K> Twice<S, K> {
    /// Counts what a request, message or call may do once, such as charges or sent messages. `count` is
    /// called before, between and after the repetitions of each request, message or call. Each request,
    /// message or call may raise the count by one, so count orders, not their rows. With `effects`, a test
    /// must not make several requests, messages or calls at the same time.
    #[must_use]
    pub fn effects<F>(mut self, count: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = u64> + Send + 'static,
    {
        self.effects = Arc::new(move || count().boxed());
        self
    }

    /// The header with the key, if it is not `Idempotency-Key`.
    #[cfg(feature = "http")]
    #[must_use]
    pub fn header(mut self, name: http::HeaderName) -> Self {
        self.header = name;
        self
    }

    /// Drops no run. Use this for a handler with `max_attempts`, and for a handler whose key is in doubt
    /// after a broken connection.
    #[must_use]
    pub fn unbroken(mut self) -> Self {
        self.breaks = 0;
        self
    }
}
