//! The same for gRPC: calls with the metadata `idempotency-key`, and answers with trailers.

use std::fmt;
use std::future::ready;
use std::task::{Context, Poll};

use futures_util::future::{BoxFuture, FutureExt as _};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use tonic::body::Body;
use tower_service::Service;

use super::Twice;
use super::answer::Whole;

/// A gRPC service in [`Twice`]: made by [`Twice::grpc`].
#[derive(Clone, Debug)]
pub struct Grpc<S>(S);

impl<S> Twice<S> {
    /// For a service of tonic behind its layer. Give it to a generated client in place of a channel: `BankClient::new(twice(server).grpc())`.
    #[must_use]
    pub fn grpc(self) -> Twice<Grpc<S>> {
        let Self { inner, effects, header, breaks, proof } = self;
        Twice { inner: Grpc(inner), effects, header, breaks, proof }
    }
}

impl<S> Service<Request<Body>> for Twice<Grpc<S>>
where
    S: Service<Request<Body>, Response = Response<Body>, Future: Send> + Clone + Send + Sync + 'static,
    S::Error: fmt::Debug + Send,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if !self.repeats(&request) {
            return self.inner.0.call(request).boxed();
        }
        let twice = self.clone();
        async move {
            let make = |body| Body::new(Full::new(body));
            let Whole { head, body, trailers } = twice.exchange(&twice.inner.0, request, make).await?;
            let body = Full::new(body).with_trailers(ready(trailers.map(Ok)));
            Ok(Response::from_parts(head, Body::new(body)))
        }
        .boxed()
    }
}
