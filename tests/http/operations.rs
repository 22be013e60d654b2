//! Tests of long operations on axum, over real sockets: a 202, the work behind it, and the answers at the
//! operation's location.

mod crashes;
mod results;
mod stores;

use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State as Shared;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use idem::http::{Builder, IdempotencyLayer, LongOperation};
use idem::{MemoryStore, OnCrash, Store};
use idem_test_servers::web::{Answer, Request, Server};
use serde_json::{Value, json};

use crate::cases::{Gate, account};

/// The largest body of a response that the layer records.
const LIMIT: usize = 1_000;

/// The handler. If the body of the request is `refuse` or `answer`, it returns an ordinary response.
/// Otherwise it accepts the request, and works until the test lets the work end.
async fn report(Shared(gate): Shared<Gate>, operation: LongOperation, body: String) -> Response {
    if body == "refuse" {
        return (StatusCode::BAD_REQUEST, "refused").into_response();
    }
    let is_answered_otherwise = body == "answer";
    let work = async move {
        let (number, call) = (gate.work().await, idem::context().unwrap());
        match &*body {
            "panic" if number == 1 => panic!("on purpose"),
            "fail" if number == 1 => StatusCode::BAD_GATEWAY.into_response(),
            "large" => "x".repeat(LIMIT + 1).into_response(),
            "stream" => ([("content-type", "text/event-stream")], "data: 1\n\n").into_response(),
            _ => {
                let recovered = HeaderValue::from_static(if call.recovered() { "true" } else { "false" });
                let text = format!("report {number}");
                (StatusCode::CREATED, [("x-recovered", recovered)], text).into_response()
            }
        }
    };
    let accepted = operation.accept(work);
    match is_answered_otherwise {
        true => (StatusCode::CREATED, "at once").into_response(),
        false => accepted.into_response(),
    }
}

fn settings<St: Store>(store: St) -> Builder<St> {
    IdempotencyLayer::builder(store)
        .tenant(account)
        .max_response_bytes(LIMIT)
        .long_operations("/operations")
        .store_timeout(Duration::from_secs(10))
}

fn router<St: Store>(layer: IdempotencyLayer<St>, gate: Gate) -> Router {
    Router::new()
        .route("/reports", post(report))
        .route_service("/operations/{name}", layer.operations())
        .layer(layer)
        .with_state(gate)
}

/// A server with long operations, and the gate of its handler.
struct Api {
    server: Server,
    gate: Gate,
}

impl Api {
    async fn start() -> Self {
        Self::with(settings(MemoryStore::new())).await
    }

    async fn with<St: Store>(builder: Builder<St>) -> Self {
        let (layer, gate) = (builder.build().unwrap(), Gate::new());
        Self { server: Server::start(router(layer, gate.clone())).await, gate }
    }

    /// Sends a request, and returns the location of its operation when the operation runs.
    async fn begin(&self, body: &str) -> String {
        let place = place(&self.server.ask(request("k", body)).await);
        self.gate.has_begun().await;
        place
    }

    async fn look(&self, place: &str) -> Answer {
        self.server.ask(of("a", Request::new("GET", place))).await
    }

    /// Lets the operation end, and returns the answer at its location.
    async fn end(&self, place: &str) -> Answer {
        self.gate.may_end.add_permits(1);
        until_over(self.server.address, place).await
    }
}

async fn until_over(address: std::net::SocketAddr, place: &str) -> Answer {
    let begin = Instant::now();
    loop {
        let answer = of("a", Request::new("GET", place)).ask(address).await;
        if answer.status != 202 {
            return answer;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "it still runs");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn of(account: &str, request: Request) -> Request {
    request.header("X-Account", account)
}

fn request(key: &str, body: &str) -> Request {
    of("a", Request::post("/reports", key)).body(body)
}

/// The location of an accepted operation. Also checks the response.
fn place(answer: &Answer) -> String {
    assert_eq!((answer.status, answer.is_replay()), (202, false), "{answer:?}");
    let fragment: Value = serde_json::from_str(include_str!("../../docs/idempotency.openapi.json")).unwrap();
    let described = &fragment["components"]["schemas"]["OperationState"]["properties"]["state"];
    assert_eq!(answer.json(), json!({ "state": described["const"] }));
    assert_eq!(answer.text("content-type"), Some("application/json"));
    assert_eq!(answer.text("cache-control"), Some("no-store"));
    assert_eq!(answer.retry_after(), 1);
    answer.text("location").unwrap().to_owned()
}

/// `answer`, to a repeated request, is a replay. It equals `end`, the answer at the location of the request's
/// operation, except for the header `cache-control`.
fn is_the_same(answer: &Answer, end: &Answer) -> bool {
    let mut end = end.clone();
    end.headers.retain(|(name, _)| name != "cache-control");
    answer.is_replay() && answer.lasting() == end.lasting()
}

#[tokio::test]
async fn a_request_is_202_at_once_and_its_place_says_that_it_runs_and_then_replays_its_response() {
    let api = Api::start().await;
    let first = api.server.ask(request("a-secret-key", "")).await;
    let place_of_it = place(&first);
    api.gate.has_begun().await;
    let name = place_of_it.strip_prefix("/operations/").unwrap();
    assert!(name.len() == 48 && name.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
    assert_eq!(place(&api.look(&place_of_it).await), place_of_it);
    let other = || request("a-secret-key", "other");
    assert_eq!(api.server.ask(other()).await.problem(), "key-reused");
    let refused = api.server.ask(of("a", Request::new("DELETE", &place_of_it))).await;
    assert_eq!((refused.status, refused.text("allow")), (405, Some("GET, HEAD")));
    let head = api.server.ask(of("a", Request::new("HEAD", &place_of_it))).await;
    assert_eq!((head.status, head.text("location"), &head.body[..]), (202, Some(&*place_of_it), &b""[..]));

    let end = api.end(&place_of_it).await;
    assert_eq!((end.status, &end.body[..], end.is_replay()), (201, &b"report 1"[..], true));
    assert_eq!(end.text("cache-control"), Some("no-store"));
    assert_eq!(api.server.ask(other()).await.problem(), "key-reused");
    let again = api.server.ask(request("a-secret-key", "")).await;
    assert_eq!((again.status, &again.body[..], again.is_replay()), (201, &b"report 1"[..], true));
    let head = api.server.ask(of("a", Request::new("HEAD", &place_of_it))).await;
    assert_eq!((head.status, head.is_replay(), &head.body[..]), (201, true, &b""[..]));
    assert_eq!(api.gate.runs.count(), 1);
}

#[tokio::test]
async fn twenty_duplicates_run_one_operation_without_their_clients_and_all_get_its_place() {
    let api = Api::start().await;
    drop(request("k", "").send(api.server.address).await);
    api.gate.has_begun().await;
    let requests = (0..20).map(|_| request("k", "").ask_at(api.server.address));
    let answers = futures_util::future::join_all(requests).await;
    let places: Vec<String> = answers.iter().map(place).collect();
    assert!(places.iter().all(|place| *place == places[0]), "{places:?}");
    // A drain waits for the operation and for its record.
    let summary = idem::drain(Duration::from_millis(50)).await;
    assert!(summary.bodies >= 1 && !summary.is_complete(), "{summary:?}");
    assert_eq!(api.end(&places[0]).await.body, b"report 1");
    assert_eq!(api.gate.runs.count(), 1);
}

#[tokio::test]
async fn a_handler_that_answers_otherwise_is_answered_as_without_operations_and_its_work_is_dropped() {
    let api = Api::start().await;
    for (how, status, text) in [("refuse", 400, "refused"), ("answer", 201, "at once")] {
        for is_replay in [false, true] {
            let answer = api.server.ask(request(how, how)).await;
            assert_eq!((answer.status, answer.is_replay()), (status, is_replay), "{how}");
            assert_eq!(answer.body, text.as_bytes());
        }
    }
    assert_eq!(api.gate.runs.count(), 0);
}

#[tokio::test]
async fn another_tenant_and_a_wrong_name_are_answered_as_an_operation_that_never_was() {
    let api = Api::start().await;
    let place = api.begin("").await;
    let unknown = api.look(&format!("/operations/{}", "0".repeat(48))).await;
    assert_eq!((unknown.status, unknown.problem()), (404, "operation-unknown".into()));
    let (of_key, of_request) = place.split_at(place.len() - 16);
    let of_other_request = format!("{of_key}{}", of_request.chars().rev().collect::<String>());
    for wrong in [&*of_other_request, of_key, "/operations/x", &place.to_uppercase()] {
        let path = wrong.replace("/OPERATIONS", "/operations");
        assert_eq!(api.look(&path).await.lasting(), unknown.lasting(), "{path}");
    }
    let look = |account: &str| of(account, Request::new("GET", &place));
    for _ in 0..2 {
        let other = api.server.ask(look("b")).await;
        assert_eq!(other.lasting(), unknown.lasting());
        assert_ne!(api.look(&place).await.status, 404);
        api.end(&place).await;
    }
    let nobody = api.server.ask(Request::new("GET", &place)).await;
    assert_eq!((nobody.status, nobody.problem()), (400, "tenant-missing".into()));
    // The same key and request, sent by another tenant, start another operation.
    let other = self::place(&api.server.ask(of("b", Request::post("/reports", "k"))).await);
    assert_ne!(other, place);
}

#[tokio::test]
async fn a_failed_operation_says_so_and_the_same_request_runs_it_again_or_it_is_in_doubt_by_the_policy() {
    for (how, recovered) in [("panic", "true"), ("fail", "false")] {
        let api = Api::start().await;
        let place = api.begin(how).await;
        let failed = api.end(&place).await;
        assert_eq!((failed.status, failed.problem()), (500, "handler-failed".into()), "{how}");
        assert_eq!(api.begin(how).await, place);
        assert_eq!(self::place(&api.look(&place).await), place);
        let end = api.end(&place).await;
        assert_eq!((end.status, end.text("x-recovered")), (201, Some(recovered)), "{how}");

        let api = Api::with(settings(MemoryStore::new()).on_crash(OnCrash::InDoubt)).await;
        let place = api.begin(how).await;
        let doubtful = api.end(&place).await;
        assert_eq!((doubtful.status, doubtful.problem()), (409, "in-doubt".into()), "{how}");
        assert_eq!(api.server.ask(request("k", how)).await.problem(), "in-doubt");
        assert_eq!(api.gate.runs.count(), 1);
    }
}

#[tokio::test]
async fn an_operation_that_takes_too_long_is_ended() {
    let api = Api::with(settings(MemoryStore::new()).handler_timeout(Duration::from_millis(50))).await;
    let place = api.begin("").await;
    assert_eq!(until_over(api.server.address, &place).await.problem(), "handler-failed");
}

#[tokio::test]
async fn a_handler_without_the_setting_is_refused_and_no_work_begins() {
    let layer = IdempotencyLayer::builder(MemoryStore::new()).tenant(account).build().unwrap();
    let gate = Gate::new();
    let server = Server::start(router(layer, gate.clone())).await;
    let refused = server.ask(request("k", "")).await;
    assert_eq!(refused.status, 500);
    assert!(refused.json()["type"].as_str().unwrap().ends_with("misconfigured"), "{refused:?}");
    let name = format!("/operations/{}", "0".repeat(48));
    assert_eq!(server.ask(of("a", Request::new("GET", &name))).await.problem(), "misconfigured");
    assert_eq!(gate.runs.count(), 0);
}
