//! The service: which requests are guarded.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::body::{Body, BoxError, discard};
use super::config::Config;
use super::exchange::Exchange;
use super::future::ResponseFuture;
use super::key;
use super::problem::{Problem, Refusal};
use super::report::{self, Outcome};
use idem_core::Store;

/// A service that is guarded by an [`IdempotencyLayer`](super::IdempotencyLayer).
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
        let config = &self.config;
        if !config.methods.contains(request.method()) {
            return ResponseFuture::through(self.inner.call(request.map(Body::new)));
        }
        let found = key::read(request.headers(), &config.header, config.syntax, config.max_key_bytes);
        let refusal = match found {
            Ok(Some(key)) => {
                // The one that is ready is taken, and a clone, which need not be, stays.
                let clone = self.inner.clone();
                let inner = std::mem::replace(&mut self.inner, clone);
                let exchange = Exchange { config: config.clone(), inner, key };
                return ResponseFuture::guarded(Box::pin(exchange.answer(request)));
            }
            Ok(None) if !config.required => {
                report::outcome(&config.scope, Outcome::Unguarded);
                return ResponseFuture::through(self.inner.call(request.map(Body::new)));
            }
            Ok(None) => Refusal::new(
                Problem::KeyMissing,
                format!("This operation requires the header `{}` with a key of its own.", config.header),
            ),
            Err(fault) => Refusal::new(
                Problem::KeyMalformed,
                format!("The header `{}` holds no key: {fault}.", config.header),
            ),
        };
        let response = config.refuse(&refusal);
        let (parts, body) = request.into_parts();
        discard(&parts.headers, Body::new(body));
        ResponseFuture::guarded(Box::pin(std::future::ready(Ok(response))))
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
