//! Tests of a handler's responses to idem's own errors: the status, the problem type and `Retry-After`.

use axum::http::header;
use axum::response::IntoResponse;
use idem::http::error_response;
use idem::testing::errors;
use idem::{ErrorKind, StoreError};

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
            // A call in flight may end at any time, so the response tells the client to retry after two
            // seconds.
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
    // A retry does not help a body that calls itself.
    let reentrant = error_response(&errors::reentrant("payments.charge"));
    assert_eq!((reentrant.status().as_u16(), reentrant.headers().get("retry-after")), (500, None));
}
