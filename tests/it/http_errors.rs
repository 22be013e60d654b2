//! Tests of a handler's responses to idem's own errors, and of when a failed request may succeed again.

use axum::Router;
use axum::extract::Path;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::post;
use idem::http::error_response;
use idem::testing::errors;
use idem::{Error, ErrorKind, MemoryStore, StoreError, idempotent};
use idem_test_servers::web::{Request, Server};

const PAGE: &str = include_str!("../../docs/errors.md");

/// The expected response to each kind of error.
fn expected(kind: ErrorKind) -> (u16, &'static str) {
    match kind {
        ErrorKind::InFlight | ErrorKind::NotDue | ErrorKind::LeaseLost => (409, "in-flight"),
        ErrorKind::Mismatch => (422, "key-reused"),
        ErrorKind::InDoubt | ErrorKind::Exhausted | ErrorKind::Undecodable => (409, "in-doubt"),
        ErrorKind::ResultNotStored => (409, "response-not-stored"),
        ErrorKind::MissingKey => (400, "key-missing"),
        ErrorKind::InvalidKey => (400, "key-malformed"),
        ErrorKind::Store | ErrorKind::NotRecorded => (503, "store-unavailable"),
        ErrorKind::NoTimeLeft => (503, "too-many-running"),
        ErrorKind::Configuration => (500, "misconfigured"),
        _ => (500, "handler-failed"),
    }
}

async fn document(response: axum::response::Response) -> serde_json::Value {
    let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    serde_json::from_slice(&body).unwrap()
}

#[tokio::test]
async fn each_kind_of_error_is_its_problem_with_its_status_and_without_the_error_s_text() {
    for error in errors::all("payments.charge") {
        let (kind, retryable) = (error.kind(), error.retry_after());
        let (status, problem) = expected(kind);
        let response = error.into_response();
        assert_eq!(response.status(), status, "{kind}");
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json", "{kind}");
        assert!(!response.headers().contains_key(header::LINK), "{kind}: the key is no header");
        let again = matches!(status, 503) || problem == "in-flight";
        assert_eq!(response.headers().contains_key(header::RETRY_AFTER), again, "{kind}");
        if retryable.is_some() {
            // While a call is in flight it may end at any time, so its clients come again after two seconds.
            let after = if kind == ErrorKind::InFlight { "2" } else { "3" };
            assert_eq!(response.headers()[header::RETRY_AFTER], after, "{kind}");
        }
        let document = document(response).await;
        assert!(document["type"].as_str().unwrap().ends_with(&format!("#{problem}")), "{kind}: {document}");
        assert_eq!(document["status"], status, "{kind}");
        assert!(!document.to_string().contains("payments.charge"), "{kind}: {document}");
        let row = format!("`{problem}`");
        let is_said = |line: &str| line.contains(&row) && line.contains(&status.to_string());
        assert!(PAGE.lines().any(is_said), "docs/errors.md has no row of {status} {row}");
    }
    // If the record cannot be read, the request may have been processed.
    let unreadable = errors::store("payments.charge", StoreError::corrupt_record("no record"));
    assert_eq!(error_response(&unreadable).status(), 409);
    // Trying again does not help a body that calls itself.
    let reentrant = error_response(&errors::reentrant("payments.charge"));
    assert_eq!((reentrant.status().as_u16(), reentrant.headers().get("retry-after")), (500, None));
}

#[idempotent(key = "order/{order}", scope = "shop.pay", fingerprint = amount, store = store)]
async fn pay(store: &MemoryStore, order: u64, amount: u64) -> Result<String, Error> {
    Ok(format!("{amount} paid for {order}"))
}

#[tokio::test]
async fn an_axum_handler_returns_the_error_as_it_is() {
    let store = MemoryStore::new();
    let handler =
        move |Path((order, amount)): Path<(u64, u64)>| async move { pay(&store, order, amount).await };
    let server = Server::start(Router::new().route("/pay/{order}/{amount}", post(handler))).await;
    assert_eq!(server.ask(Request::new("POST", "/pay/1/7")).await.body, b"7 paid for 1");
    let refused = server.ask(Request::new("POST", "/pay/1/8")).await;
    let kind = refused.json()["type"].as_str().unwrap().to_owned();
    assert!(refused.status == 422 && kind.ends_with("#key-reused"), "{kind}");
}
