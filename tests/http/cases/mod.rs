//! Tests that every framework must pass, over real sockets. The handlers are those of an axum router;
//! `crate::framework` puts the framework and the layer in front of the router. This file has the servers that
//! the tests share.

mod crashes;
mod draft;
mod failures;
mod handlers;
mod keys;
mod replays;
mod requests;
mod responses;

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::handler::Handler;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{any, post};
use idem::http::{Builder, IdempotencyLayer};
use idem::{MemoryStore, Store};
use idem_test_servers::web::{Answer, Request};
use tokio::sync::Semaphore;

use crate::framework::{Server, serve};
use crate::support::Runs;

/// The largest body of a request or of a kept response in these tests.
pub(crate) const LIMIT: usize = 1_000;

pub(crate) fn builder() -> Builder<MemoryStore> {
    let builder = IdempotencyLayer::builder(MemoryStore::new()).shared_by_all_clients();
    builder.max_request_bytes(LIMIT).max_response_bytes(LIMIT)
}

pub(crate) fn account(request: &Parts) -> Option<String> {
    Some(request.headers.get("x-account")?.to_str().ok()?.to_owned())
}

/// A server with this handler of `POST /pay`, behind a layer with these options.
pub(crate) async fn pay<H, T>(
    options: impl FnOnce(Builder<MemoryStore>) -> Builder<MemoryStore>,
    handler: H,
) -> Server
where
    H: Handler<T, ()>,
    T: 'static,
{
    let router = Router::new().route("/pay", post(handler)).layer(DefaultBodyLimit::disable());
    serve(router, options(builder()).build().unwrap()).await
}

/// A server whose handler counts its runs and answers with the status in `x-status` and headers of every
/// kind.
pub(crate) async fn api<St: Store>(layer: IdempotencyLayer<St>) -> (Server, Runs) {
    let runs = Runs::default();
    let handler = |State(runs): State<Runs>, request: HeaderMap| async move {
        let number = runs.run();
        let status = request.get("x-status").map_or(201, |status| status.to_str().unwrap().parse().unwrap());
        let mut headers = HeaderMap::new();
        headers.insert("location", HeaderValue::from_str(&format!("/payments/{number}")).unwrap());
        headers.append("link", HeaderValue::from_static("</a>; rel=\"a\""));
        headers.append("link", HeaderValue::from_static("</b>; rel=\"b\""));
        headers.insert("x-bytes", HeaderValue::from_bytes(b"caf\xe9").unwrap());
        headers.insert("set-cookie", HeaderValue::from_static("session=private"));
        headers.insert("x-denied", HeaderValue::from_static("1"));
        headers.insert("x-hop", HeaderValue::from_static("1"));
        headers.insert("connection", HeaderValue::from_static("x-hop"));
        (StatusCode::from_u16(status).unwrap(), headers, format!("receipt {number}")).into_response()
    };
    let router = Router::new().route("/{*path}", any(handler)).with_state(runs.clone());
    (serve(router, layer).await, runs)
}

pub(crate) async fn with(
    options: impl FnOnce(Builder<MemoryStore>) -> Builder<MemoryStore>,
) -> (Server, Runs) {
    api(options(builder()).build().unwrap()).await
}

/// A server that echoes bodies and counts its runs.
pub(crate) async fn echo() -> (Server, Runs) {
    let runs = Runs::default();
    let count = runs.clone();
    let echo = move |body: Bytes| async move {
        count.run();
        body
    };
    (pay(|builder| builder, echo).await, runs)
}

/// The work of a handler, which waits until the test lets it end.
#[derive(Clone)]
pub(crate) struct Gate {
    pub(crate) runs: Runs,
    begun: Arc<Semaphore>,
    pub(crate) may_end: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        let none = || Arc::new(Semaphore::new(0));
        Self { runs: Runs::default(), begun: none(), may_end: none() }
    }

    /// Waits until the test lets the work end, and returns the number of the run.
    pub(crate) async fn work(&self) -> usize {
        let number = self.runs.run();
        self.begun.add_permits(1);
        self.may_end.acquire().await.unwrap().forget();
        number
    }

    pub(crate) async fn has_begun(&self) {
        self.begun.acquire().await.unwrap().forget();
    }
}

/// A server whose handler works behind a [`Gate`].
pub(crate) struct Slow {
    pub(crate) server: Server,
    pub(crate) gate: Gate,
}

impl Slow {
    pub(crate) async fn start(options: impl FnOnce(Builder<MemoryStore>) -> Builder<MemoryStore>) -> Self {
        let gate = Gate::new();
        let of_handler = gate.clone();
        let handler = move || async move {
            let number = of_handler.work().await;
            format!("receipt {number}")
        };
        Self { server: pay(options, handler).await, gate }
    }

    /// Sends a request, and returns when its handler runs.
    pub(crate) async fn begin(&self, key: &str) -> tokio::net::TcpStream {
        let client = Request::post("/pay", key).send(self.server.address).await;
        self.gate.has_begun().await;
        client
    }
}

/// Sends the request twice, and returns whether the second response is a replay. Both responses must have the
/// same status, and a replay must also have the same body.
pub(crate) async fn is_kept(server: &Server, request: Request) -> bool {
    let (first, again) = (server.ask(request.clone()).await, server.ask(request).await);
    assert!(!first.is_replay() && first.status == again.status, "{first:?} {again:?}");
    assert!(!again.is_replay() || (first.body == again.body));
    again.is_replay()
}

/// Repeats the request until no other request with the key is in flight, and returns the answer.
pub(crate) async fn when_free(server: &Server) -> Answer {
    loop {
        let answer = server.ask(Request::post("/pay", "k")).await;
        if answer.status != 409 || answer.problem() != "in-flight" {
            return answer;
        }
    }
}
