//! The answer to a request whose handler made an idempotent call that failed: for handlers outside this layer.
//!
//! Owns what a handler's client is told of an [`Error`]. The statuses are those of the layer's own problems.

use std::collections::HashMap;

use http::Response;
use http::header::LINK;

use super::body::Body;
use super::builder::{DRAFT, PROBLEMS};
use super::exchange::refusal;
use super::problem::{Answers, Problem, Refusal};
use crate::error::Error;

/// The answer to a request whose handler got this error: the [`Problem`] that it is, with its status, and with
/// `Retry-After` where the same request has a chance later.
///
/// | error | status | problem |
/// |---|---|---|
/// | `InFlight`, `NotDue`, `LeaseLost` | 409, with `Retry-After` | `in-flight` |
/// | `Mismatch` | 422 | `key-reused` |
/// | `InDoubt`, `Exhausted`, `Undecodable`, and `Store` with a record that cannot be read | 409 | `in-doubt` |
/// | `ResultNotStored` | 409 | `response-not-stored` |
/// | `MissingKey` | 400 | `key-missing` |
/// | `InvalidKey` | 400 | `key-malformed` |
/// | `Store`, `NotRecorded` | 503, with `Retry-After` | `store-unavailable` |
/// | `TimedOut`, `Step`, a body that calls itself | 500 | `handler-failed` |
/// | `Configuration` | 500 | `misconfigured` |
///
/// No text of the error itself goes to the client: log that. With the feature `axum`, [`Error`] is an
/// `axum::response::IntoResponse` of this.
///
/// ```
/// # use idem_runtime as idem;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use idem::{Error, MemoryStore, Operation, http};
///
/// let (store, charge) = (MemoryStore::new(), Operation::new("payments.charge"));
/// let error = charge.run(&store, "", || async { Ok::<_, Error>(()) }).await.unwrap_err();
/// let response = http::error_response(&error);
/// assert_eq!(response.status(), 400);
/// assert_eq!(response.headers()["content-type"], "application/problem+json");
/// # }
/// ```
#[must_use]
pub fn error_response(error: &Error) -> Response<Body> {
    let answers = Answers { base: PROBLEMS.to_owned(), types: HashMap::new(), link: DRAFT };
    let mut response = answers.answer(&of_a_handler(error));
    // The key need not be in the header that the draft is about.
    response.headers_mut().remove(LINK);
    response
}

fn of_a_handler(error: &Error) -> Refusal {
    match error {
        Error::MissingKey { .. } => Refusal::new(
            Problem::KeyMissing,
            "The request has no idempotency key, or an empty one. Nothing was processed.",
        ),
        Error::InvalidKey { .. } => Refusal::new(
            Problem::KeyMalformed,
            "The idempotency key of the request cannot be used: it is too long. Nothing was processed.",
        ),
        Error::InFlight { reentrant: true, .. } => {
            Refusal::new(Problem::HandlerFailed, "The processing of the request failed.")
        }
        error => refusal(error),
    }
}

#[cfg(feature = "axum")]
impl axum::response::IntoResponse for Error {
    fn into_response(self) -> axum::response::Response {
        error_response(&self).map(axum::body::Body::new)
    }
}
