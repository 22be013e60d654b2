//! Sends each request with a key to a service several times, and compares the responses.

use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::BodyExt as _;
use tower_service::Service;

use super::Twice;
use super::repetition::{Answer, AnswerKind};

/// Makes the bodies of requests and responses.
pub trait MakeBody<B> {
    fn body(bytes: Bytes, trailers: Option<HeaderMap>) -> B;
}

impl<B: From<Bytes>> MakeBody<B> for () {
    fn body(bytes: Bytes, _: Option<HeaderMap>) -> B {
        B::from(bytes)
    }
}

impl<S, K, B, R> Service<Request<B>> for Twice<S, K>
where
    S: Service<Request<B>, Response = Response<R>, Error: Send, Future: Send> + Clone + Send + Sync + 'static,
    K: MakeBody<B> + MakeBody<R> + Clone + Send + Sync + 'static,
    B: http_body::Body<Data: Send, Error: fmt::Debug + Send> + Send + 'static,
    R: http_body::Body<Data: Send, Error: fmt::Debug + Send> + Send + 'static,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<R>, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if !request.headers().contains_key(&self.header) {
            return self.inner.call(request).boxed();
        }
        let twice = self.clone();
        async move {
            let (head, body) = request.into_parts();
            let name = format!("{} {}", head.method, head.uri.path());
            let (body, _) = whole(&name, body).await;
            let once = || async {
                let mut service = twice.inner.clone();
                poll_fn(|cx| service.poll_ready(cx)).await?;
                let request = Request::from_parts(head.clone(), K::body(body.clone(), None));
                let (head, body) = service.call(request).await?.into_parts();
                let (body, trailers) = whole(&name, body).await;
                Ok::<_, S::Error>((head, body, trailers))
            };
            let (head, body, trailers) = twice.repeat("request", Some(&name), once).await?;
            Ok(Response::from_parts(head, K::body(body, trailers)))
        }
        .boxed()
    }
}

/// The longest part of a body that a message shows.
const SHOWN: usize = 200;

/// A whole response, with its trailers.
type Whole = (Parts, Bytes, Option<HeaderMap>);

/// The trailer with this name, or else the header.
fn metadata<'w>(whole: &'w Whole, name: &str) -> Option<&'w [u8]> {
    let trailer = whole.2.as_ref().and_then(|trailers| trailers.get(name));
    trailer.or_else(|| whole.0.headers.get(name)).map(HeaderValue::as_bytes)
}

/// The parts that must be the same in all answers, by name.
fn parts(whole: &Whole) -> [(&'static str, Option<&[u8]>); 6] {
    [
        ("status", Some(whole.0.status.as_str().as_bytes())),
        ("code", metadata(whole, "grpc-status")),
        ("message", metadata(whole, "grpc-message")),
        ("content-type", metadata(whole, "content-type")),
        ("location", metadata(whole, "location")),
        ("body", Some(&whole.1)),
    ]
}

impl Answer for Whole {
    fn kind(&self) -> AnswerKind {
        let may_retry = metadata(self, "retry-after").is_some();
        match (metadata(self, "grpc-status"), self.0.status.as_u16()) {
            // 10 is `ABORTED`. `GrpcIdempotencyLayer` records answers with the codes in the second pattern.
            (Some(b"10"), _) if may_retry => AnswerKind::InFlight,
            (Some(b"0" | b"3" | b"5" | b"6" | b"9" | b"11"), _) => AnswerKind::Final,
            (Some(_), _) => AnswerKind::Retryable,
            (None, 409) if may_retry => AnswerKind::InFlight,
            // A long operation that still runs.
            (None, 202) if may_retry && self.1 == br#"{"state":"in_flight"}"#[..] => AnswerKind::InFlight,
            (None, 401 | 403 | 407 | 408 | 425 | 429 | 500..=599) => AnswerKind::Retryable,
            (None, _) => AnswerKind::Final,
        }
    }

    fn difference(&self, other: &Self) -> String {
        let differences: Vec<_> = std::iter::zip(parts(self), parts(other))
            .filter(|(first, second)| first != second)
            .map(|((name, first), (_, second))| format!("{name} {} and then {}", shown(first), shown(second)))
            .collect();
        differences.join(", ")
    }
}

fn shown(value: Option<&[u8]>) -> String {
    let Some(value) = value else { return "none".to_owned() };
    let ellipsis = if value.len() > SHOWN { ".." } else { "" };
    format!("`{}{ellipsis}`", String::from_utf8_lossy(&value[..value.len().min(SHOWN)]))
}

/// Reads the body of a request or of its response. Returns its bytes and its trailers.
async fn whole<B: http_body::Body<Error: fmt::Debug>>(name: &str, body: B) -> (Bytes, Option<HeaderMap>) {
    let body = body.collect().await;
    let body = body.unwrap_or_else(|error| panic!("a body of {name} cannot be read: {error:?}"));
    let trailers = body.trailers().cloned();
    (body.to_bytes(), trailers)
}
