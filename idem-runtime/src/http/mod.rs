//! The `Idempotency-Key` header as a tower layer, as draft-ietf-httpapi-idempotency-key-header-07 has
//! it, on any store.
//!
//! [`IdempotencyLayer`] guards axum routers and every other tower service. The page `docs/http.md` in
//! the repository says what clients see.
//!
//! # Problems
//!
//! What the layer itself answers is `application/problem+json` (RFC 9457), never recorded. The `type`
//! of a problem ends with its [name](Problem::name), and leads here unless
//! [set](Builder::problem_base):
//!
//! ## key-missing
//!
//! Status 400. The operation requires a key. Send one that is random and of this request alone.
//!
//! ## key-malformed
//!
//! Status 400. The header is there and holds no key. The `detail` says why.
//!
//! ## tenant-missing
//!
//! Status 400. The request does not say whose key it is.
//!
//! ## request-incomplete
//!
//! Status 400. The body of the request ended early or is malformed. Nothing was processed.
//!
//! ## request-too-large
//!
//! Status 413. The body of the request is larger than is taken. Nothing was processed.
//!
//! ## in-flight
//!
//! Status 409. A request with this key is being processed. Send the same again after `Retry-After` seconds: that
//! is what is left of the lease, rounded up, so that it is enough even if its process died.
//!
//! ## key-reused
//!
//! Status 422. The key was used with another request.
//!
//! ## response-not-stored
//!
//! Status 409. The request was processed, and its response was a stream or too large to keep. It is not
//! processed again.
//!
//! ## in-doubt
//!
//! Status 409. The request was begun and never finished, or what is recorded of it cannot be read. It is not begun
//! again before an operator has found out what it did. The `detail` says which.
//!
//! ## store-unavailable
//!
//! Status 503, with `Retry-After`. The store of the keys did not answer. Nothing was processed.
//!
//! ## too-many-running
//!
//! Status 503, with `Retry-After`. The server processes as many requests as it takes. Nothing was processed.
//!
//! ## handler-failed
//!
//! Status 500. The handler panicked, took too long, or was ended with its server. The key is free again, at the
//! latest when the lease is over, and the same request can be sent again; unless [`on_crash`](Builder::on_crash)
//! says that it is in doubt. The `detail` says which.
//!
//! ## misconfigured
//!
//! Status 500. The layer cannot work as it is set up. Nothing was processed.

// What stands here: the faces (layer, service, future, builder), the exchange that they lead to, the handling that it leads
// to, and what both use, each of which knows nothing of the others: key, fingerprint, json, body, recording, problem.
// `errors` says which problem an error is, also for handlers that make idempotent calls of their own.

mod body;
mod builder;
mod config;
mod errors;
mod exchange;
#[cfg(feature = "axum")]
mod extract;
mod fingerprint;
mod future;
mod handling;
mod json;
mod key;
mod layer;
mod multipart;
mod problem;
mod recording;
mod report;
mod running;
mod service;

pub use body::{Body, BoxError};
pub use builder::Builder;
pub use config::Recording;
pub use errors::error_response;
pub use exchange::Begun;
#[cfg(feature = "axum")]
pub use extract::Idempotent;
pub use fingerprint::RequestFingerprint;
pub use future::ResponseFuture;
pub use handling::Run;
pub use layer::IdempotencyLayer;
pub use problem::Problem;
pub use recording::StoredResponse;
pub use running::Running;
pub use service::Idempotency;
