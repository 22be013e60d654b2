//! The `Idempotency-Key` header of draft-ietf-httpapi-idempotency-key-header-07 as a tower layer, on any
//! store.
//!
//! [`IdempotencyLayer`] guards axum routers and every other tower service. The page `docs/http.md` in the
//! repository describes what clients see.
//!
//! # Problems
//!
//! A refusal by the layer is `application/problem+json` (RFC 9457) and is never recorded. The `type` of a
//! problem ends with its [name](Problem::name). The `type` leads to this page unless
//! [`documentation`](Builder::documentation) is set. These are the problems:
//!
//! ## key-missing
//!
//! Status 400. The operation requires a key. Send a random key that you use for this request only.
//!
//! ## key-malformed
//!
//! Status 400. The request has the header, but no valid key in it. The `detail` says why.
//!
//! ## tenant-missing
//!
//! Status 400. The request does not say which tenant it belongs to.
//!
//! ## request-incomplete
//!
//! Status 400. The body of the request ended early or is malformed. Nothing was processed.
//!
//! ## request-too-large
//!
//! Status 413. The body of the request is larger than the server accepts. Nothing was processed.
//!
//! ## in-flight
//!
//! Status 409. A request with this key is being processed. Send the same request again after `Retry-After`
//! seconds. The header says at most 2 seconds, because the other request may be answered at any time. If the
//! process of the other request died, the key becomes free when the lease expires.
//!
//! ## key-reused
//!
//! Status 422. The key was used with another request.
//!
//! ## response-not-stored
//!
//! Status 409. The request was processed, but its response was a stream or too large to keep. The request is
//! not processed again.
//!
//! ## in-doubt
//!
//! Status 409. The processing of the request began and never finished, or its record cannot be read. The
//! request is not processed again before an operator has found out what the first run did. The `detail` says
//! which of the two happened.
//!
//! ## operation-unknown
//!
//! Status 404. The client has no [long operation](LongOperation) of this name: it was never accepted, it is
//! another tenant's, or its record has expired.
//!
//! ## store-unavailable
//!
//! Status 503, with `Retry-After`. The store of the keys did not answer. Nothing was processed, unless the
//! `detail` says that the response was not committed.
//!
//! ## too-many-running
//!
//! Status 503, with `Retry-After`. The server already processes as many requests as it accepts. Nothing was
//! processed.
//!
//! ## handler-failed
//!
//! Status 500. The processing failed. For example, the handler panicked, took too long, ended with its
//! server, or returned a response that cannot be recorded in its transaction. Or a [long
//! operation](LongOperation) ended without a response that is kept. The key becomes free again, at the latest
//! when the lease expires, and the same request can be sent again. With
//! [`OnCrash::InDoubt`](Builder::on_crash), the key is in doubt instead. The `detail` says what happened, and
//! whether the client can send the request again.
//!
//! ## misconfigured
//!
//! Status 500. The layer's settings cannot work, or the server cannot read its records. Or a function in the
//! settings, such as the function of [`tenant`](Builder::tenant), panicked before the handler began. Nothing
//! was processed.

#![cfg_attr(docsrs, feature(doc_cfg))]
// Only tests may panic or print.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

// The modules: users begin with `layer`, `service` and `builder`. A request goes through `exchange` until its
// key is claimed. Then `handling` runs the handler, and calls `serving` for the response. These modules use
// `key`, `fingerprint`, `json`, `body` and `recording`, which do not know their callers. `errors` maps an
// error to a problem, for the layer and for handlers that make idempotent calls themselves. `idem-runtime`
// defines the problems.

mod body;
mod builder;
mod config;
mod errors;
mod exchange;
#[cfg(feature = "axum")]
mod extract;
mod fingerprint;
mod guard;
mod handling;
mod json;
mod key;
mod layer;
mod long_operation;
mod multipart;
mod operation_status;
mod recording;
mod report;
mod service;
mod serving;
mod transaction;

pub use body::{Body, BoxError};
pub use builder::Builder;
pub use config::Recording;
pub use errors::error_response;
pub use exchange::Begun;
#[cfg(feature = "axum")]
pub use extract::Idempotent;
pub use fingerprint::RequestFingerprint;
pub use guard::Guard;
pub use handling::Run;
pub use idem_core::transaction::TransactionPool;
pub use idem_runtime::problem::Problem;
pub use key::{MalformedKey, idempotency_key};
pub use layer::IdempotencyLayer;
pub use long_operation::LongOperation;
pub use operation_status::OperationStatus;
pub use recording::StoredResponse;
pub use service::Idempotency;
pub use transaction::{Transactional, Tx};

#[cfg(test)]
mod tests {
    use super::Problem;

    /// A problem's `type` leads to a heading of the module's documentation.
    #[test]
    fn every_problem_has_its_section_in_the_documentation_with_its_status() {
        let documentation: Vec<&str> = include_str!("lib.rs")
            .lines()
            .map_while(|line| line.strip_prefix("//!"))
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect();
        let headings = documentation.iter().filter_map(|line| line.strip_prefix("## "));
        assert!(headings.eq(Problem::ALL.iter().map(|problem| problem.name())));
        for problem in Problem::ALL {
            let heading = format!("## {}", problem.name());
            let place = documentation.iter().position(|line| *line == heading).unwrap();
            let text = documentation[place + 1];
            assert!(text.starts_with(&format!("Status {}", problem.status().as_u16())), "{heading}: {text}");
        }
    }
}
