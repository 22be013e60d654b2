//! Tests of `twice` around services: it finds and names each handler with a planted fault, and reports
//! nothing about handlers without faults.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::routing::{get, post};
use axum::{Router, http};
use futures_util::{FutureExt as _, stream};
use idem_http::IdempotencyLayer;
use idem_runtime::MemoryStore;
use idem_testing::{Twice, twice};
use tower::ServiceExt as _;

use crate::twice::{Shop, message};

/// The routes behind the layer.
fn guarded(shop: &Shop, routes: Router<Shop>) -> Twice<Router> {
    watched(shop, routes.route_layer(IdempotencyLayer::shared_by_all_clients(shop.store.clone())))
}

/// A route behind a layer of its own.
fn paid_once(path: &str) -> Router {
    let layer = IdempotencyLayer::shared_by_all_clients(MemoryStore::new());
    Router::new().route(path, post(|| async { "paid" })).route_layer(layer)
}

fn watched(shop: &Shop, routes: Router<Shop>) -> Twice<Router> {
    shop.watched(routes.with_state(shop.clone()))
}

fn request(path: &str) -> Request<Body> {
    keyed(path, "k-1")
}

fn keyed(path: &str, key: &str) -> Request<Body> {
    Request::post(path).header("Idempotency-Key", key).body(Body::from("7")).unwrap()
}

async fn answer(app: &Twice<Router>, request: Request<Body>) -> (StatusCode, String) {
    let response = app.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// The message of `twice` about a handler.
async fn fault(app: &Twice<Router>, path: &str) -> String {
    message(AssertUnwindSafe(answer(app, request(path))).catch_unwind().await.expect_err("no fault"))
}

#[tokio::test]
async fn a_handler_behind_the_layer_passes_and_its_test_sees_one_answer_and_one_effect() {
    let shop = Shop::default();
    let pay = |State(shop): State<Shop>, amount: String| async move {
        shop.pay_anew().await.unwrap();
        (StatusCode::CREATED, format!("charge {} of {amount}", shop.payments()))
    };
    let refuse = || async { (StatusCode::UNPROCESSABLE_ENTITY, "no such card") };
    let look = |State(shop): State<Shop>| async move { shop.call().to_string() };
    let routes = Router::new().route("/payments", post(pay)).route("/refunds", post(refuse));
    let app = guarded(&shop, routes.route("/look", get(look)));
    for _ in 0..2 {
        let expected = (StatusCode::CREATED, "charge 1 of 7".into());
        assert_eq!(answer(&app, request("/payments")).await, expected);
    }
    assert_eq!(answer(&app, keyed("/refunds", "k-2")).await.0, StatusCode::UNPROCESSABLE_ENTITY);
    // A request without a key arrives once.
    let calls = shop.call();
    let plain = Request::get("/look").body(Body::empty()).unwrap();
    assert_eq!(answer(&app, plain).await, (StatusCode::OK, (calls + 1).to_string()));
    assert_eq!((shop.payments(), shop.call()), (1, calls + 2));
}

#[tokio::test]
async fn a_handler_that_looks_first_and_writes_later_is_found_by_two_requests_at_the_same_time() {
    let (shop, seen) = (Shop::default(), Arc::new(Mutex::new(HashSet::new())));
    let pay = move |State(shop): State<Shop>, headers: http::HeaderMap| async move {
        let key = headers["idempotency-key"].to_str().unwrap().to_owned();
        if !seen.lock().unwrap().contains(&key) {
            shop.pay_anew().await.unwrap();
            seen.lock().unwrap().insert(key);
        }
        "paid"
    };
    let app = watched(&shop, Router::new().route("/payments", post(pay))).unbroken();
    let message = fault(&app, "/payments?card=4242").await;
    let expected = "POST /payments did something twice: the effects went from 0 to 2 when it came twice at the same time, ";
    assert!(message.starts_with(expected), "{message}");
    assert!(!message.contains("k-1") && !message.contains("4242"), "{message}");
}

#[tokio::test]
async fn a_test_in_which_no_request_was_guarded_fails() {
    let plain = Request::post("/payments").body(Body::empty()).unwrap();
    // Neither request proves anything: one has no key, the other has a key but no layer and no counted
    // effects.
    for request in [plain, request("/payments")] {
        let app = twice(Router::new().route("/payments", post(|| async { "paid" })));
        assert_eq!(answer(&app, request).await.0, StatusCode::OK);
        let fault = catch_unwind(AssertUnwindSafe(|| drop(app))).expect_err("no fault");
        assert!(message(fault).starts_with("`twice` checked nothing: "));
    }
}

#[tokio::test]
async fn another_answer_to_the_same_request_is_found() {
    let number = Arc::new(AtomicU64::new(0));
    let pay = move || async move { format!("receipt {}", number.fetch_add(1, Ordering::SeqCst)) };
    let message = fault(&twice(Router::new().route("/payments", post(pay))), "/payments").await;
    let expected =
        "POST /payments answered otherwise when it came again: body `receipt 0` and then `receipt 1`";
    assert_eq!(message, expected);
    for name in ["content-type", "location"] {
        let headers = Box::leak(Box::new([(name, "one")]));
        let message = fault(&first((200, headers, "paid")), "/payments").await;
        assert!(message.ends_with(&format!("came again: {name} `one` and then none")), "{message}");
    }
}

/// A status, headers and a body.
type Answer = (u16, &'static [(&'static str, &'static str)], &'static str);

fn response((status, headers, body): Answer) -> http::Response<Body> {
    let mut response = http::Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(Body::from(body)).unwrap()
}

/// A route that gives this answer first. All later answers have the status 200, and the gRPC code `OK` if the
/// first answer has a gRPC code.
fn first(answer: Answer) -> Twice<Router> {
    let shop = Shop::default();
    let number = Arc::new(AtomicU64::new(0));
    let is_grpc = answer.1.iter().any(|(name, _)| *name == "grpc-status");
    let pay = move |State(shop): State<Shop>| async move {
        shop.pay_at_once("order-42");
        let is_first = number.fetch_add(1, Ordering::SeqCst) == 0;
        let later: Answer = (200, if is_grpc { &[("grpc-status", "0")] } else { &[] }, "paid");
        response(if is_first { answer } else { later })
    };
    watched(&shop, Router::new().route("/payments", post(pay)))
}

#[tokio::test]
async fn an_answer_that_asks_the_client_to_try_again_is_not_compared() {
    for status in [401, 403, 407, 408, 425, 429, 500, 503, 599] {
        let app = first((status, &[], "try again"));
        assert_eq!(answer(&app, request("/payments")).await, (StatusCode::OK, "paid".into()), "{status}");
    }
    for code in ["1", "2", "4", "7", "8", "10", "12", "13", "14", "15", "16"] {
        let app = first((200, Box::leak(Box::new([("grpc-status", code)])), "try again"));
        assert_eq!(answer(&app, request("/payments")).await, (StatusCode::OK, "paid".into()), "{code}");
    }
    for status in [202, 400, 402, 404, 409, 410, 422] {
        let headers: &[_] = if status == 409 { &[] } else { &[("retry-after", "1")] };
        let message = fault(&first((status, headers, "no")), "/payments").await;
        assert!(
            message.ends_with(&format!("status `{status}` and then `200`, body `no` and then `paid`")),
            "{message}"
        );
    }
    for code in ["3", "5", "6", "9", "11"] {
        let headers = Box::leak(Box::new([("grpc-status", code), ("grpc-message", "none left")]));
        let message = fault(&first((200, headers, "")), "/payments").await;
        let expected =
            format!("code `{code}` and then `0`, message `none left` and then none, body `` and then `paid`");
        assert!(message.ends_with(&expected), "{message}");
    }
}

#[tokio::test]
async fn an_answer_for_a_key_in_flight_is_waited_for_and_one_that_asks_to_try_again_is_not() {
    const RETRY: (&str, &str) = ("retry-after", "1");
    const IN_FLIGHT: [Answer; 3] = [
        (409, &[RETRY], "in flight"),
        (202, &[RETRY], r#"{"state":"in_flight"}"#),
        (200, &[("grpc-status", "10"), RETRY], ""),
    ];
    for in_flight in IN_FLIGHT {
        let begun = Arc::new(AtomicU64::new(0));
        // The first three runs get the answer for a key in flight, and the later runs fail.
        let runs = begun.clone();
        let pay = move || async move {
            let is_in_flight = runs.fetch_add(1, Ordering::SeqCst) < 3;
            response(if is_in_flight { in_flight } else { (503, &[], "down") })
        };
        let app = twice(Router::new().route("/payments", post(pay)).merge(paid_once("/guarded")));
        // `twice` makes two runs at once. Both are answered as in flight, so `twice` makes two more. The last
        // of these fails, so `twice` stops waiting for the key.
        assert_eq!(
            answer(&app, request("/payments")).await,
            (StatusCode::SERVICE_UNAVAILABLE, "down".into())
        );
        assert_eq!(begun.load(Ordering::SeqCst), 5);
        assert_eq!(answer(&app, request("/guarded")).await, (StatusCode::OK, "paid".into()));
    }
}

#[tokio::test]
async fn a_long_body_is_cut_in_the_message() {
    let message = fault(&first((201, &[], "x".repeat(201).leak())), "/payments").await;
    assert!(message.ends_with(&format!("body `{}..` and then `paid`", "x".repeat(200))), "{message}");
}

#[tokio::test]
async fn the_header_with_the_key_can_have_another_name() {
    for (name, runs) in [("idempotency-key", 1), ("x-request-key", 3)] {
        let begun = Arc::new(AtomicU64::new(0));
        let counter = begun.clone();
        let pay = move || async move {
            counter.fetch_add(1, Ordering::SeqCst);
        };
        let app = twice(Router::new().route("/payments", post(pay)).merge(paid_once("/guarded")))
            .header(http::HeaderName::from_static("x-request-key"));
        let keyed =
            |path| Request::post(path).header("idempotency-key", "k-1").header("x-request-key", "k-1");
        answer(&app, keyed("/guarded").body(Body::empty()).unwrap()).await;
        answer(&app, Request::post("/payments").header(name, "k-1").body(Body::empty()).unwrap()).await;
        assert_eq!(begun.load(Ordering::SeqCst), runs, "{name}");
    }
}

/// A service that panics if it is called before it is ready, as tower allows. One path fails.
#[derive(Default)]
struct Strict {
    is_ready: bool,
    charges: Arc<AtomicU64>,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { is_ready: false, charges: self.charges.clone() }
    }
}

impl tower::Service<Request<Body>> for Strict {
    type Response = http::Response<Body>;
    type Error = &'static str;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "it is called before it is ready");
        self.charges.store(1, Ordering::SeqCst);
        std::future::ready(match request.uri().path() {
            "/down" => Err("down"),
            _ => Ok(http::Response::default()),
        })
    }
}

#[tokio::test]
async fn a_service_is_called_when_it_is_ready_and_its_error_comes_to_the_test() {
    let strict = Strict::default();
    let charges = strict.charges.clone();
    let app = twice(strict).effects(move || std::future::ready(charges.load(Ordering::SeqCst)));
    assert!(app.clone().oneshot(request("/payments")).await.is_ok());
    assert_eq!(app.clone().oneshot(request("/down")).await.unwrap_err(), "down");
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_a_fault_of_its_request() {
    let app = twice(paid_once("/payments"));
    assert_eq!(answer(&app, request("/payments")).await.0, StatusCode::OK);
    let broken = Body::from_stream(stream::iter([Err::<&str, _>(std::io::Error::other("cut"))]));
    let broken = Request::post("/payments").header("Idempotency-Key", "k-2").body(broken).unwrap();
    let message = message(AssertUnwindSafe(answer(&app, broken)).catch_unwind().await.expect_err("no fault"));
    assert!(message.starts_with("a body of POST /payments cannot be read: "), "{message}");
}
