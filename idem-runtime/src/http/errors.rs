//! How an [`Error`] becomes a response: in the layer, and in handlers outside it that make idempotent calls.
//!
//! Owns the mapping from errors to problems.

use http::Response;
use http::header::LINK;

use super::body::Body;
use super::problem::{Answers, Problem, Refusal};
use crate::error::{Error, StoreErrorKind};

/// The response to a request whose handler got this error: its [`Problem`] with the status, and with `Retry-After` if
/// the same request may succeed later.
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
/// | `TimedOut`, `Step`, a body that calls itself | 500 | `handler-failed` |
/// | `Configuration` | 500 | `misconfigured` |
///
/// The client does not get the text of the error, so log it. With the feature `axum`, [`Error`] implements
/// `axum::response::IntoResponse` with this response.
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
    let mut response = Answers::default().answer(&of_a_handler(error));
    // The link leads to the draft of the header, and outside the layer the key need not come from that header.
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

/// The refusal that the client gets for an error of the engine.
pub(super) fn refusal(error: &Error) -> Refusal {
    match error {
        Error::InFlight { retry_after, .. } => Refusal::in_flight(Some(*retry_after)),
        Error::NotDue { retry_after, .. } => Refusal::not_due(*retry_after),
        // Another attempt may have taken over, and its result is not known yet.
        Error::LeaseLost { .. } => Refusal::in_flight(None),
        Error::Mismatch { .. } => Refusal::new(
            Problem::KeyReused,
            "The idempotency key was used before with another request. Use a new key for a new request, or \
             send the first request again as it was.",
        ),
        Error::Undecodable { .. } => Refusal::new(
            Problem::InDoubt,
            "A request with this idempotency key was processed, and this server cannot read the response that is \
             recorded. It is not processed again before somebody has found out what it did.",
        ),
        Error::ResultNotStored { .. } => Refusal::new(
            Problem::ResponseNotStored,
            "A request with this idempotency key was processed, and its response was too large to keep or a \
             stream. It is not processed again. Look up what it did.",
        ),
        Error::InDoubt { .. } | Error::Exhausted { .. } => Refusal::new(
            Problem::InDoubt,
            "A request with this idempotency key was begun and never finished. It is not processed again \
             before somebody has found out what it did.",
        ),
        // There is a record, so the request may have been processed.
        Error::Store { source, .. } if source.kind() == StoreErrorKind::CorruptRecord => Refusal::new(
            Problem::InDoubt,
            "What is recorded under this idempotency key cannot be read, so that it is not known whether the \
             request was processed. It is not processed again before somebody has found out.",
        ),
        Error::TimedOut { .. } => Refusal::new(
            Problem::HandlerFailed,
            "The processing of the request took too long and was stopped.",
        ),
        Error::NoTimeLeft { .. } => too_many_running(),
        // A handler gets this error itself, so the layer does not see it.
        Error::Step { .. } => Refusal::new(Problem::HandlerFailed, "The processing of the request failed."),
        Error::Store { source, .. } if source.kind() == StoreErrorKind::WrongKeys => misconfigured(),
        Error::Store { .. } | Error::NotRecorded { .. } => Refusal::new(
            Problem::StoreUnavailable,
            "Idempotency keys cannot be checked now. Nothing was processed; send the same request with the \
             same key again after the time in `Retry-After`.",
        ),
        Error::MissingKey { .. } | Error::InvalidKey { .. } | Error::Configuration { .. } => misconfigured(),
    }
}

pub(super) fn misconfigured() -> Refusal {
    Refusal::new(Problem::Misconfigured, "The server cannot check idempotency keys. Nothing was processed.")
}

pub(super) fn no_runtime() -> Refusal {
    Refusal::new(Problem::Misconfigured, "The server cannot process requests with idempotency keys.")
}

pub(super) fn too_many_running() -> Refusal {
    Refusal::new(
        Problem::TooManyRunning,
        "The server processes as many requests as it takes. Nothing was processed; send the same request with the \
         same key again after the time in `Retry-After`.",
    )
}

#[cfg(feature = "axum")]
impl axum::response::IntoResponse for Error {
    fn into_response(self) -> axum::response::Response {
        error_response(&self).map(axum::body::Body::new)
    }
}
