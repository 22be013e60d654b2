//! The service: which requests are guarded.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::body::{Body, BoxError};
use super::config::Config;
use super::exchange::{Begun, begin};
use super::future::ResponseFuture;
use idem_core::Store;

/// A service that is guarded by an [`IdempotencyLayer`](super::IdempotencyLayer).
///
/// A response that is recorded or replayed has an [`Outcome`](idem_runtime::Outcome) as an extension, for services outside this
/// one: of a replay, which attempt made it and when.
pub struct Idempotency<S, St> {
    inner: S,
    config: Arc<Config<St>>,
}

impl<S, St> Idempotency<S, St> {
    pub(super) const fn new(inner: S, config: Arc<Config<St>>) -> Self {
        Self { inner, config }
    }
}

impl<S, St, B, R> Service<Request<B>> for Idempotency<S, St>
where
    St: Store,
    S: Service<Request<Body>, Response = Response<R>, Error: Send, Future: Send> + Clone + Send + 'static,
    S::Error: 'static,
    S::Future: 'static,
    B: http_body::Body + Send + 'static,
    B::Error: Into<BoxError>,
    R: http_body::Body + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (head, body) = request.into_parts();
        let is_guarded = self.config.guards(&head);
        let request = Request::from_parts(head, body);
        if !is_guarded {
            return ResponseFuture::through(self.inner.call(request.map(Body::new)));
        }
        // Takes the service that is ready, and leaves a clone in its place, which need not be ready.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let config = self.config.clone();
        ResponseFuture::guarded(Box::pin(async move {
            match begin(&config, request).await {
                Begun::Answered(response) => Ok(response),
                Begun::Run(run, request) => run.spawn(async move { inner.call(request).await }).await,
            }
        }))
    }
}

impl<S: Clone, St> Clone for Idempotency<S, St> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), config: self.config.clone() }
    }
}

impl<S: fmt::Debug, St> fmt::Debug for Idempotency<S, St> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotency").field("inner", &self.inner).finish_non_exhaustive()
    }
}
