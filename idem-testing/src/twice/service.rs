//! A service that receives each request with a key several times.

use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use http::request::Parts;
use http::{Request, Response};
use tower_service::Service;

use super::Twice;
use super::answer::{Whole, whole};
use super::repetition::Words;

const WORDS: Words = Words { subject: "request", broke: "its connection broke" };

impl<S, B, R> Service<Request<B>> for Twice<S>
where
    S: Service<Request<B>, Response = Response<R>, Future: Send> + Clone + Send + Sync + 'static,
    S::Error: Send,
    B: http_body::Body<Data: Send, Error: fmt::Debug + Send> + From<Bytes> + Send + 'static,
    R: http_body::Body<Data: Send, Error: fmt::Debug + Send> + From<Bytes> + Send + 'static,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<R>, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if !self.repeats(&request) {
            return self.inner.call(request).boxed();
        }
        let twice = self.clone();
        async move {
            let Whole { head, body, .. } = twice.exchange(&twice.inner, request, B::from).await?;
            Ok(Response::from_parts(head, R::from(body)))
        }
        .boxed()
    }
}

impl<S> Twice<S> {
    /// Whether the request has a key.
    pub(super) fn repeats<B>(&self, request: &Request<B>) -> bool {
        let has_key = request.headers().contains_key(&self.header);
        if !has_key {
            self.proof.count_unguarded();
        }
        has_key
    }

    /// All requests, with bodies made by `make`, and the checks after them.
    pub(super) async fn exchange<T, B, R>(
        &self,
        service: &T,
        request: Request<B>,
        make: fn(Bytes) -> B,
    ) -> Result<Whole, T::Error>
    where
        T: Service<Request<B>, Response = Response<R>> + Clone,
        B: http_body::Body<Error: fmt::Debug>,
        R: http_body::Body<Error: fmt::Debug>,
    {
        let (head, body) = request.into_parts();
        let (body, _) = whole(body).await;
        let name = format!("{} {}", head.method, head.uri.path());
        self.repeat(&WORDS, Some(name), || send(service, &head, make(body.clone()))).await
    }
}

async fn send<T, B, R>(service: &T, head: &Parts, body: B) -> Result<Whole, T::Error>
where
    T: Service<Request<B>, Response = Response<R>> + Clone,
    R: http_body::Body<Error: fmt::Debug>,
{
    let mut service = service.clone();
    poll_fn(|cx| service.poll_ready(cx)).await?;
    let (head, body) = service.call(Request::from_parts(head.clone(), body)).await?.into_parts();
    let (body, trailers) = whole(body).await;
    Ok(Whole { head, body, trailers })
}
