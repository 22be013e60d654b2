//! The problem that an HTTP client gets for each error.

#[cfg(feature = "axum")]
use http::header::LINK;

#[cfg(feature = "axum")]
use super::Documentation;
use super::{Problem, ProblemDetails};
use crate::error::{Error, StoreErrorKind};

impl ProblemDetails {
    /// What an HTTP client learns about this error. The client does not get the text of the error. The table
    /// of `idem::http::error_response` has the problem of each error.
    #[must_use]
    pub fn of(error: &Error) -> Self {
        match error {
            Error::MissingKey { .. } => Self::new(
                Problem::KeyMissing,
                "The request has no idempotency key, or an empty one. Nothing was processed.",
            ),
            Error::InvalidKey { .. } => Self::new(
                Problem::KeyMalformed,
                "The idempotency key of the request cannot be used: it is too long. Nothing was processed.",
            ),
            // The handler's own code causes both errors: a call in it would wait for the handler itself, or a
            // step in it has no value.
            Error::InFlight { reentrant: true, .. } | Error::Step { .. } => {
                Self::new(Problem::HandlerFailed, "The processing of the request failed.")
            }
            Error::InFlight { retry_after, .. } => Self::in_flight(Some(*retry_after)),
            Error::NotDue { retry_after, .. } => Self::not_due(*retry_after),
            // Another attempt may have taken over, and its result is not known yet.
            Error::LeaseLost { .. } => Self::in_flight(None),
            Error::Mismatch { .. } => Self::new(
                Problem::KeyReused,
                "The idempotency key was used before with another request. Use a new key for a new request, or \
             send the first request again as it was.",
            ),
            Error::Undecodable { .. } => Self::new(
                Problem::InDoubt,
                "A request with this idempotency key was processed, and this server cannot read the response that is \
             recorded. It is not processed again before somebody has found out what it did.",
            ),
            // There is a record, so the request may have been processed.
            Error::Store { source, .. } if source.kind() == StoreErrorKind::CorruptRecord => Self::new(
                Problem::InDoubt,
                "What is recorded under this idempotency key cannot be read by this server. The request may have been \
             processed, and is not processed again before somebody has found out what it did.",
            ),
            Error::ResultNotStored { .. } => Self::new(
                Problem::ResponseNotStored,
                "A request with this idempotency key was processed, and its response was too large to keep or a \
             stream. It is not processed again. Look up what it did.",
            ),
            Error::InDoubt { .. } | Error::Exhausted { .. } => Self::new(
                Problem::InDoubt,
                "A request with this idempotency key was begun and never finished. It is not processed again \
             before somebody has found out what it did.",
            ),
            Error::TimedOut { .. } => Self::new(
                Problem::HandlerFailed,
                "The processing of the request took too long and was stopped.",
            ),
            Error::NoTimeLeft { .. } => Self::new(
                Problem::TooManyRunning,
                "The server has no time left for the request. Nothing was processed; send the same request with the same \
             key again after the time in `Retry-After`.",
            ),
            Error::Store { source, .. } if source.kind() == StoreErrorKind::WrongKeys => {
                Self::misconfigured()
            }
            Error::Store { .. } | Error::NotRecorded { .. } => Self::new(
                Problem::StoreUnavailable,
                "Idempotency keys cannot be checked now. Nothing was processed; send the same request with the \
             same key again after the time in `Retry-After`.",
            ),
            Error::Configuration { .. } => Self::misconfigured(),
        }
    }

    /// The layer or the call is set up in a way that cannot work.
    fn misconfigured() -> Self {
        Self::new(Problem::Misconfigured, "The server cannot check idempotency keys. Nothing was processed.")
    }
}

#[cfg(feature = "axum")]
impl axum_core::response::IntoResponse for Error {
    fn into_response(self) -> axum_core::response::Response {
        let mut response = Documentation::default().response(&ProblemDetails::of(&self));
        // Removed, because the link leads to the draft of the `Idempotency-Key` header, and outside the layer
        // the key need not come from that header.
        response.headers_mut().remove(LINK);
        response.map(axum_core::body::Body::from)
    }
}
