//! Tests of what the HTTP layer records, replays and refuses, and of its settings, over real sockets. Here are the server,
//! what a handler knows, and what is refused when the layer is built.

mod duplicates;
mod failures;
mod keys;
mod problems;
mod replays;

use crate::framework::{Server, serve};
use crate::support;

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Request as HttpRequest, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{any, post};
use idem::http::{Builder, IdempotencyLayer, RequestFingerprint};
use idem::{MemoryStore, Store};
use idem_test_servers::web::Request;
use support::Runs;
use tower_layer::Layer as _;

/// A server whose handler counts its runs and answers with the status in `x-status` and headers of every kind.
async fn api<St: Store>(layer: IdempotencyLayer<St>) -> (Server, Runs) {
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
        headers.insert("www-authenticate", HeaderValue::from_static("Basic"));
        headers.insert("x-hop", HeaderValue::from_static("1"));
        headers.insert("connection", HeaderValue::from_static("x-hop"));
        (StatusCode::from_u16(status).unwrap(), headers, format!("receipt {number}")).into_response()
    };
    let router = Router::new().route("/{*path}", any(handler)).with_state(runs.clone());
    (serve(router, layer).await, runs)
}

fn builder() -> Builder<MemoryStore> {
    IdempotencyLayer::builder(MemoryStore::new()).shared_by_all_clients()
}

async fn with(options: impl FnOnce(Builder<MemoryStore>) -> Builder<MemoryStore>) -> (Server, Runs) {
    api(options(builder()).build().unwrap()).await
}

fn account(request: &Parts) -> Option<String> {
    Some(request.headers.get("x-account")?.to_str().ok()?.to_owned())
}

#[tokio::test]
async fn a_handler_knows_its_call_and_has_a_key_for_the_next_service() {
    let handler = || async {
        let context = idem::context().unwrap();
        format!("{} {} {}", context.operation(), context.attempt(), context.downstream_key("gateway").len())
    };
    let router = Router::new().route("/pay", post(handler));
    let server = serve(router, IdempotencyLayer::shared_by_all_clients(MemoryStore::new())).await;
    assert_eq!(server.ask(Request::post("/pay", "k")).await.body, b"http 1 32");
}

#[test]
fn options_that_cannot_work_are_refused_when_the_layer_is_built() {
    let faults: [fn(Builder<MemoryStore>) -> Builder<MemoryStore>; 7] = [
        |builder| builder.ttl(Duration::ZERO),
        |builder| builder.lease(Duration::ZERO),
        |builder| builder.store_timeout(Duration::ZERO),
        |builder| builder.scope(" "),
        |builder| builder.documentation("not a uri"),
        |builder| builder.fingerprint(RequestFingerprint::new().without_member("no pointer")),
        |builder| builder.fail_open().on_crash(idem::OnCrash::InDoubt),
    ];
    for (number, fault) in faults.into_iter().enumerate() {
        let built = fault(builder()).build();
        assert!(built.is_err(), "{number}");
    }
    assert!(builder().build().is_ok());
}

#[tokio::test]
async fn no_debug_and_no_problem_shows_a_key_or_a_body() {
    let layer = IdempotencyLayer::builder(MemoryStore::new()).tenant(account).build().unwrap();
    let request =
        HttpRequest::post("/pay").body(idem::http::Body::from(axum::body::Bytes::from("private"))).unwrap();
    assert!(!format!("{layer:?} {:?} {:?}", layer.layer(()), request.body()).contains("private"));
    let refused = api(layer).await.0.ask(Request::post("/pay", "private\"x")).await;
    assert!(!String::from_utf8(refused.body).unwrap().contains("private"));
}
