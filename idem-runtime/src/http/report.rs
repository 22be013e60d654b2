//! Events and metrics of the layer: one count for each guarded request, and an event for each refusal.
//!
//! No key, tenant, path or body is ever shown.

use super::problem::Problem;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The handler ran, and its response is kept.
    Handled,
    /// The handler ran, and its response is not kept: the key is free again, or in doubt.
    Released,
    /// An earlier response was given.
    Replayed,
    /// The handler ran without a key.
    Unguarded,
    /// The inner service failed.
    Failed,
    Refused(Problem),
}

impl Outcome {
    const fn name(self) -> &'static str {
        match self {
            Self::Handled => "handled",
            Self::Released => "released",
            Self::Replayed => "replayed",
            Self::Unguarded => "unguarded",
            Self::Failed => "failed",
            Self::Refused(problem) => problem.name(),
        }
    }
}

/// Counts a request, and says what it was refused for.
pub(super) fn outcome(operation: &str, outcome: Outcome) {
    #[cfg(feature = "metrics")]
    metrics::counter!("idem_http_total", "operation" => operation.to_owned(), "outcome" => outcome.name())
        .increment(1);
    let Outcome::Refused(problem) = outcome else { return };
    let name = outcome.name();
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

/// A handler did not end as it should have.
pub(super) fn handler_ended(operation: &str, how: &'static str) {
    if how == "panicked" {
        tracing::error!(target: "idem", event = "handler_panicked", operation, "the handler of a request panicked");
    } else {
        tracing::warn!(target: "idem", event = "handler_ended", operation, how, "the handler of a request was ended");
    }
}
