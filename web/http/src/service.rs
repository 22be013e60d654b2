//! The service: it lets unguarded requests through and passes guarded ones to `exchange`.

use std::mem::replace;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::body::{Body, BoxError};
use super::exchange::{Begun, begin};
use super::layer::IdempotencyLayer;
use idem_core::Store;

/// A service that is guarded by an [`IdempotencyLayer`]. A server drops the future of a request when the
/// client has gone away. A handler that was started under a key still continues, unless it is in a
/// transaction.
///
/// A response that was recorded or replayed has an [`Outcome`](idem_runtime::Outcome) as an extension, for
/// services outside this service. Outside a transaction, a response that could not be recorded also has an
/// `Outcome`. The `Outcome` of a replay says which attempt made the response, and when.
#[derive(Clone, Debug)]
pub struct Idempotency<S, St> {
    pub(super) inner: S,
    pub(super) layer: IdempotencyLayer<St>,
}

impl<S, St: Clone> Layer<S> for IdempotencyLayer<St> {
    type Service = Idempotency<S, St>;

    fn layer(&self, inner: S) -> Self::Service {
        Idempotency { inner, layer: self.clone() }
    }
}

impl<S, St, B, R> Service<Request<B>> for Idempotency<S, St>
where
    St: Store,
    S: Service<Request<Body>, Response = Response<R>, Error: Send, Future: Send> + Clone + Send + 'static,
    S::Error: 'static,
    S::Future: 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (head, body) = request.into_parts();
        let is_guarded = self.layer.guards(&head);
        let request = Request::from_parts(head, Body::new(body));
        if !is_guarded {
            let response = self.inner.call(request);
            return Box::pin(async move { Ok(response.await?.map(Body::new)) });
        }
        // `self.inner` is ready, but a clone may not be. So this call takes `self.inner`, and the clone
        // stays.
        let clone = self.inner.clone();
        let (mut inner, layer) = (replace(&mut self.inner, clone), self.layer.clone());
        Box::pin(async move {
            match begin(&layer.config, request).await {
                Begun::Answered(response) => Ok(response),
                Begun::Run(run, request) => run.spawn(async move { inner.call(request).await }).await,
            }
        })
    }
}
