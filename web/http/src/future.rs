//! The future of a response.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::Response;
use pin_project_lite::pin_project;

use super::body::{Body, BoxError};

pin_project! {
    /// The future that [`Idempotency`](super::Idempotency) returns. A server drops it when the client has gone away; a
    /// handler that was started under a key still continues.
    pub struct ResponseFuture<F, E> {
        #[pin]
        kind: Kind<F, E>,
    }
}

pin_project! {
    #[project = KindProjection]
    enum Kind<F, E> {
        Through { #[pin] inner: F },
        Guarded { exchange: BoxFuture<'static, Result<Response<Body>, E>> },
    }
}

impl<F, E> ResponseFuture<F, E> {
    pub(super) const fn through(inner: F) -> Self {
        Self { kind: Kind::Through { inner } }
    }

    pub(super) const fn guarded(exchange: BoxFuture<'static, Result<Response<Body>, E>>) -> Self {
        Self { kind: Kind::Guarded { exchange } }
    }
}

impl<F, B, E> Future for ResponseFuture<F, E>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: http_body::Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Output = Result<Response<Body>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().kind.project() {
            KindProjection::Through { inner } => inner.poll(cx).map_ok(|response| response.map(Body::new)),
            KindProjection::Guarded { exchange } => exchange.as_mut().poll(cx),
        }
    }
}

impl<F, E> fmt::Debug for ResponseFuture<F, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseFuture")
    }
}
