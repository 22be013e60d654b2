//! How an [`Error`] becomes a response: in the layer, and in handlers outside the layer that make idempotent
//! calls.

use http::Response;
use http::header::LINK;
use idem_runtime::Error;
use idem_runtime::problem::{Documentation, Problem, ProblemDetails};

use crate::body::Body;

/// The response to a request whose handler got this error: the error's [`Problem`] with its status, and with
/// `Retry-After` if the same request may succeed later.
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
/// | `NoTimeLeft` | 503, with `Retry-After` | `too-many-running` |
/// | `TimedOut`, `Step`, and `InFlight` if a body calls itself | 500 | `handler-failed` |
/// | `Configuration`, and `Store` with the wrong keys (`WrongKeys`) | 500 | `misconfigured` |
///
/// The client does not get the text of the error, so log it. With the feature `axum`, [`Error`] implements
/// `axum::response::IntoResponse` with this response.
///
/// ```
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
    let mut response = Documentation::default().response(&ProblemDetails::of(error)).map(Body::from);
    // The link leads to the draft of the `Idempotency-Key` header. It is removed, because outside the layer
    // the key may come from elsewhere.
    response.headers_mut().remove(LINK);
    response
}

/// The problem that the client gets if the layer's own idempotent call fails with this error.
pub(crate) fn refusal(error: &Error) -> ProblemDetails {
    match error {
        // The layer builds the record's key, so the client's key is not at fault.
        Error::MissingKey { .. } | Error::InvalidKey { .. } => misconfigured(),
        error => ProblemDetails::of(error),
    }
}

pub(crate) fn misconfigured() -> ProblemDetails {
    ProblemDetails::new(
        Problem::Misconfigured,
        "The server cannot check idempotency keys. Nothing was processed.",
    )
}

pub(crate) fn not_committed() -> ProblemDetails {
    ProblemDetails::new(
        Problem::StoreUnavailable,
        "The response could not be committed. Send the same request with the same key again after the time in \
         `Retry-After`: it is processed again only if nothing of it was committed.",
    )
}

pub(crate) fn too_many_running() -> ProblemDetails {
    ProblemDetails::new(
        Problem::TooManyRunning,
        "The server processes as many requests as it takes. Nothing was processed; send the same request with the \
         same key again after the time in `Retry-After`.",
    )
}
