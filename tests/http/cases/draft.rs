//! Tests of draft-ietf-httpapi-idempotency-key-header-07, sentence by sentence, over a real socket. Each test is named
//! after its section.

use crate::framework::{Server, serve};
use crate::support;

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{patch, post};
use idem::MemoryStore;
use idem::http::{Builder, Guard, IdempotencyLayer};
use idem_test_servers::web::Request;
use support::Runs;
use tokio::sync::Semaphore;

const DOCUMENTATION: &str = "https://api.example.com/docs/idempotency";

/// A guarded API that counts its effects.
struct Api {
    server: Server,
    runs: Runs,
    begun: Arc<Semaphore>,
    may_end: Arc<Semaphore>,
}

impl Api {
    async fn start() -> Self {
        Self::with(|builder| builder).await
    }

    async fn with(options: impl FnOnce(Builder<MemoryStore>) -> Builder<MemoryStore>) -> Self {
        let builder = IdempotencyLayer::builder(MemoryStore::new())
            .shared_by_all_clients()
            .documentation(DOCUMENTATION);
        let layer = options(builder).build().unwrap();
        let (runs, begun, may_end) =
            (Runs::default(), Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let count = runs.clone();
        let pay = move || {
            let number = count.run();
            async move { (StatusCode::CREATED, format!("receipt {number}")) }
        };
        let (slow_begun, slow_may_end) = (begun.clone(), may_end.clone());
        let slow = move || async move {
            slow_begun.add_permits(1);
            slow_may_end.acquire().await.unwrap().forget();
            "slow"
        };
        let count = runs.clone();
        let decline = move || {
            count.run();
            async { (StatusCode::PAYMENT_REQUIRED, "declined") }
        };
        let router = Router::new()
            .route("/payments", post(pay.clone()).get(pay.clone()).put(pay.clone()).delete(pay.clone()))
            .route("/payments/{id}", patch(pay.clone()))
            .route("/declined", post(decline))
            .route("/slow", post(slow));
        Self { server: serve(router, layer).await, runs, begun, may_end }
    }

    async fn ask(&self, request: Request) -> idem_test_servers::web::Answer {
        self.server.ask(request).await
    }
}

#[tokio::test]
async fn section_1_post_and_patch_are_made_fault_tolerant_and_other_methods_are_left_alone() {
    let api = Api::start().await;
    let patch = Request::new("PATCH", "/payments/1").header("Idempotency-Key", "\"k\"");
    let (first, again) = (api.ask(patch.clone()).await, api.ask(patch).await);
    assert_eq!((first.is_replay(), again.is_replay()), (false, true));
    assert_eq!(api.runs.count(), 1);
    for (done, method) in ["GET", "PUT", "DELETE"].into_iter().enumerate() {
        for _ in 0..2 {
            let answer = api.ask(Request::new(method, "/payments").header("Idempotency-Key", "\"k\"")).await;
            assert_eq!((answer.status, answer.is_replay()), (201, false));
        }
        assert_eq!(api.runs.count(), 1 + 2 * (done + 1));
    }
}

#[tokio::test]
async fn section_2_1_the_value_is_a_string_and_anything_else_is_refused() {
    let api = Api::with(|builder| builder.guard(|_| Guard::Quoted)).await;
    for value in
        ["abc", "\"abc", "abc\"", "1", "?1", ":YWJj:", "(\"abc\")", "\"a\\bc\"", "\"abc\" \"d\"", "\"\"", ""]
    {
        let answer = api.ask(Request::new("POST", "/payments").header("Idempotency-Key", value)).await;
        assert_eq!((answer.status, answer.problem()), (400, "key-malformed".into()), "{value}");
    }
    assert_eq!(api.runs.count(), 0);
    let uuid = "\"8e03978e-40d5-43e8-bc93-6894a57f9324\"";
    let answer = api.ask(Request::new("POST", "/payments").header("Idempotency-Key", uuid)).await;
    assert_eq!(answer.status, 201);
}

#[tokio::test]
async fn section_2_1_a_request_with_more_than_one_header_is_refused() {
    let api = Api::start().await;
    for values in [["\"a\"", "\"a\""], ["\"a\"", "\"b\""], ["\"a\"", ""]] {
        let twice = values.into_iter().fold(Request::new("POST", "/payments"), |request, value| {
            request.header("Idempotency-Key", value)
        });
        let answer = api.ask(twice).await;
        assert_eq!((answer.status, answer.problem()), (400, "key-malformed".into()));
    }
    let listed = Request::new("POST", "/payments").header("Idempotency-Key", "\"a\", \"b\"");
    assert_eq!(api.ask(listed).await.problem(), "key-malformed");
    assert_eq!(api.runs.count(), 0);
}

#[tokio::test]
async fn section_2_4_the_fingerprint_tells_requests_of_one_key_apart() {
    let api = Api::start().await;
    let first = Request::post("/payments?a=1", "k").json(r#"{"amount":1,"currency":"EUR"}"#);
    assert_eq!(api.ask(first.clone()).await.status, 201);
    for other in [
        Request::post("/payments?a=2", "k").json(r#"{"amount":1,"currency":"EUR"}"#),
        Request::post("/payments", "k").json(r#"{"amount":1,"currency":"EUR"}"#),
        Request::post("/declined?a=1", "k").json(r#"{"amount":1,"currency":"EUR"}"#),
        Request::post("/payments?a=1", "k").json(r#"{"amount":2,"currency":"EUR"}"#),
        Request::post("/payments?a=1", "k").body(r#"{"amount":1,"currency":"EUR"}"#),
        Request::new("PATCH", "/payments?a=1")
            .header("Idempotency-Key", "\"k\"")
            .json(r#"{"amount":1,"currency":"EUR"}"#),
    ] {
        assert_eq!(api.ask(other).await.problem(), "key-reused");
    }
    let respelled = Request::post("/payments?a=1", "k").json(r#"{ "currency": "EUR", "amount": 1 }"#);
    assert!(api.ask(respelled).await.is_replay());
    assert_eq!(api.runs.count(), 1);
}

#[tokio::test]
async fn section_2_6_a_retry_after_completion_is_given_the_result_be_it_success_or_error() {
    let api = Api::start().await;
    for (path, status) in [("/payments", 201), ("/declined", 402)] {
        let first = api.ask(Request::post(path, path)).await;
        let again = api.ask(Request::post(path, path)).await;
        assert_eq!((first.status, first.is_replay()), (status, false));
        assert!(again.is_replay());
        assert_eq!(first.lasting(), again.lasting());
    }
    assert_eq!(api.runs.count(), 2);
}

#[tokio::test]
async fn section_2_6_and_2_7_a_concurrent_request_is_a_conflict_and_needs_no_correction() {
    let api = Api::start().await;
    let mut first = Request::post("/slow", "k").send(api.server.address).await;
    api.begun.acquire().await.unwrap().forget();
    let refused = api.ask(Request::post("/slow", "k")).await;
    assert_eq!((refused.status, refused.problem()), (409, "in-flight".into()));
    assert!((1..=30).contains(&refused.retry_after()), "{refused:?}");
    assert!(refused.text("link").unwrap().contains(DOCUMENTATION));
    let other = api.ask(Request::post("/slow", "k").body("another payload")).await;
    assert_eq!((other.status, other.problem()), (422, "key-reused".into()), "another payload is refused");
    api.may_end.add_permits(1);
    let first = idem_test_servers::web::Answer::read(&mut first).await;
    let again = api.ask(Request::post("/slow", "k")).await;
    assert_eq!((again.is_replay(), again.lasting()), (true, first.lasting()));
}

#[tokio::test]
async fn section_2_7_a_missing_key_is_400_with_a_link_to_the_documentation() {
    let api = Api::start().await;
    let answer = api.ask(Request::new("POST", "/payments")).await;
    assert_eq!((answer.status, answer.problem()), (400, "key-missing".into()));
    let link = format!("<{DOCUMENTATION}>; rel=\"describedby\"; type=\"text/html\"");
    assert_eq!(answer.text("link"), Some(link.as_str()));
    assert_eq!(answer.text("content-language"), Some("en"));
    assert_eq!(api.runs.count(), 0);
}

#[tokio::test]
async fn section_2_2_and_2_7_another_payload_is_422_with_a_link_and_fails_again_unless_it_is_corrected() {
    let api = Api::start().await;
    api.ask(Request::post("/payments", "k").body("one")).await;
    for _ in 0..3 {
        let other = api.ask(Request::post("/payments", "k").body("two")).await;
        assert_eq!((other.status, other.problem()), (422, "key-reused".into()));
        assert!(other.text("link").unwrap().contains(DOCUMENTATION));
        assert_eq!(api.ask(Request::new("POST", "/payments")).await.status, 400);
    }
    let again = api.ask(Request::post("/payments", "k").body("one")).await;
    assert!(again.is_replay(), "a problem is not stored");
    assert_eq!(api.runs.count(), 1);
}
