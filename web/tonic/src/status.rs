//! The gRPC codes: which code the layer's own answers have, and which codes of a method are kept.

use http::header::{HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Response};
use http_body_util::BodyExt as _;
use idem_http::{Body, Problem, Recording};
use tonic::{Code, Status};

/// The metadata for the name of a problem.
const PROBLEM: &str = "idempotency-problem";

/// The answer to a call that cannot have a key, because the call streams, or is in the format of gRPC-Web.
pub(crate) fn streams(what: &str) -> Response<tonic::body::Body> {
    Status::unimplemented(format!("an idempotency key is for unary calls: {what}")).into_http()
}

/// What to do with an answer with this code by default. A final answer is kept. If the client must retry or
/// authenticate, or the method does not exist, the key is released. If it is unknown how far the method got,
/// the answer counts as a crash.
pub(crate) const fn recording(code: Code) -> Recording {
    match code {
        Code::Ok
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::OutOfRange => Recording::Keep,
        Code::Unavailable
        | Code::Aborted
        | Code::ResourceExhausted
        | Code::Unauthenticated
        | Code::PermissionDenied
        | Code::Unimplemented => Recording::Release,
        Code::Unknown | Code::Internal | Code::DataLoss | Code::Cancelled | Code::DeadlineExceeded => {
            Recording::Crash
        }
    }
}

/// The code of an answer, from the trailers, or from the headers if no trailer has a code.
pub(crate) fn code(headers: &HeaderMap, trailers: Option<&HeaderMap>) -> Code {
    let status = trailers.and_then(Status::from_header_map).or_else(|| Status::from_header_map(headers));
    // A client also treats an answer without a status as `UNKNOWN`.
    status.map_or(Code::Unknown, |status| status.code())
}

const fn of_problem(problem: Problem) -> Code {
    match problem {
        Problem::KeyMissing | Problem::KeyMalformed | Problem::TenantMissing | Problem::RequestIncomplete => {
            Code::InvalidArgument
        }
        // The code that tonic returns for a message that is too large.
        Problem::RequestTooLarge => Code::OutOfRange,
        Problem::InFlight => Code::Aborted,
        Problem::KeyReused | Problem::InDoubt | Problem::ResponseNotStored => Code::FailedPrecondition,
        Problem::StoreUnavailable | Problem::TooManyRunning => Code::Unavailable,
        _ => Code::Internal,
    }
}

pub(crate) async fn answer(problem: Problem, response: Response<Body>) -> Response<tonic::body::Body> {
    let (parts, body) = response.into_parts();
    // The layer made this body in memory, so reading it cannot fail.
    let document = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let document: serde_json::Value = serde_json::from_slice(&document).unwrap_or_default();
    let detail = document["detail"].as_str().unwrap_or(problem.name());
    let mut answer = Status::new(of_problem(problem), detail).into_http::<tonic::body::Body>();
    answer.headers_mut().insert(PROBLEM, HeaderValue::from_static(problem.name()));
    if let Some(time) = parts.headers.get(RETRY_AFTER) {
        answer.headers_mut().insert(RETRY_AFTER, time.clone());
    }
    answer
}
