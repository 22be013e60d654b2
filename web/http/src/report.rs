//! Span, events and metrics of the layer: a count of requests by their outcome, an event for each refusal,
//! and an event for each handler that did not end normally.
//!
//! Never shows a key, tenant, path or body.

use http::{Method, StatusCode};
use tracing::Span;

use idem_runtime::problem::Problem;

/// The span of one guarded request, with the names of OpenTelemetry's conventions for HTTP. This span does
/// not contain the path. The server's span, which the web framework makes, contains the path.
pub(super) fn span(operation: &str, method: &Method) -> Span {
    // An unregistered method may be any text, so the span does not show it.
    let known = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::OPTIONS,
        Method::PATCH,
    ];
    let method = if known.contains(method) { method.as_str() } else { "_OTHER" };
    tracing::info_span!(
        target: "idem",
        "idempotent_request",
        idem.operation = operation,
        http.request.method = method,
        http.response.status_code = tracing::field::Empty,
        idem.http.outcome = tracing::field::Empty,
    )
}

pub(super) fn answered(span: &Span, status: StatusCode) {
    span.record("http.response.status_code", status.as_u16());
}

/// Counts a request by its outcome, which is the name of a problem or one of these:
///
/// - `handled`: the handler ran, and its response was to be kept. Outside a transaction, this is also the
///   outcome if the response could not be recorded;
/// - `released`: the handler ran, and its response is not kept, so the key is free again or in doubt;
/// - `replayed`: the client got the recorded response;
/// - `accepted`: the client got a 202 for a long operation that another request has begun;
/// - `unguarded`: the handler ran without a key;
/// - `failed`: the inner service failed.
pub(super) fn outcome(operation: &str, outcome: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::counter!("idem_http_total", "operation" => operation.to_owned(), "outcome" => outcome)
        .increment(1);
    #[cfg(not(feature = "metrics"))]
    let _ = operation;
    Span::current().record("idem.http.outcome", outcome);
}

/// Counts a request that is refused, and emits an event with the reason.
pub(super) fn refused(operation: &str, problem: Problem) {
    let name = problem.name();
    outcome(operation, name);
    macro_rules! say {
        ($level:ident) => {
            tracing::$level!(
                target: "idem",
                event = "http_refused",
                operation,
                problem = name,
                "a request was refused"
            )
        };
    }
    match problem {
        Problem::Misconfigured => say!(error),
        Problem::StoreUnavailable | Problem::TooManyRunning | Problem::HandlerFailed | Problem::InDoubt => {
            say!(warn);
        }
        _ => say!(debug),
    }
}

pub(super) fn handler_ended(operation: &str, how: &'static str) {
    if how == "panicked" {
        tracing::error!(target: "idem", event = "handler_panicked", operation, "the handler of a request panicked");
    } else {
        tracing::warn!(target: "idem", event = "handler_ended", operation, how, "the handler of a request was ended");
    }
}
