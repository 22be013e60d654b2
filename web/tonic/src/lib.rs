//! Idempotency keys for gRPC with tonic: a repeated unary call under the same key gets the first answer, with
//! its message, status and trailers, and its method does not run again.
//!
//! The key is the metadata `idempotency-key`. Put a [`GrpcIdempotencyLayer`] around a whole server or around
//! one service. It has the settings of an [`IdempotencyLayer`](idem_http::IdempotencyLayer).
//!
//! ```
//! use idem::MemoryStore;
//! use idem::http::{Guard, IdempotencyLayer};
//! use idem_tonic::GrpcIdempotencyLayer;
//!
//! # fn main() -> Result<(), idem::Error> {
//! let layer = IdempotencyLayer::builder(MemoryStore::new())
//!     .shared_by_all_clients()
//! // Calls that only read data need no key.
//!     .guard(|_| Guard::Optional)
//!     .build()?;
//! let layer = GrpcIdempotencyLayer::new(layer);
//! // tonic::transport::Server::builder().layer(layer).add_service(..)
//! # let _ = layer;
//! # Ok(())
//! # }
//! ```
//!
//! # Answers
//!
//! The layer's own answers have the metadata `idempotency-problem` with the name of the
//! [`Problem`](idem_http::Problem). If a later try may succeed, they also have `retry-after` in seconds. The
//! problem decides the code:
//!
//! | problem | code |
//! |---|---|
//! | `key-missing`, `key-malformed`, `tenant-missing`, `request-incomplete` | `INVALID_ARGUMENT` |
//! | `request-too-large` | `OUT_OF_RANGE` |
//! | `in-flight` | `ABORTED` |
//! | `key-reused`, `in-doubt`, `response-not-stored` | `FAILED_PRECONDITION` |
//! | `store-unavailable`, `too-many-running` | `UNAVAILABLE` |
//! | `handler-failed`, `misconfigured` | `INTERNAL` |
//! | a call that streams, or comes in the format of gRPC-Web | `UNIMPLEMENTED`, without `idempotency-problem` |
//!
//! # Streams
//!
//! A key is for unary calls. If a call with a key sends more than one message, or does not end within 10
//! seconds after its first message, it is refused before its method runs. If the answer to a call with a key
//! has more than one message, the method has already run. Then the client gets `UNIMPLEMENTED`, also for
//! every later call with the same key.
//!
//! # gRPC-Web
//!
//! Put `GrpcWebLayer` outside this layer: `Server::builder().layer(GrpcWebLayer::new()).layer(idempotency)`.
//! A call with a key that arrives in the format of gRPC-Web is refused before its method runs.
//!
//! # The same call
//!
//! Messages are compared by their bytes. Usually, a client that sends the same message again sends the same
//! bytes. There are two exceptions: messages with maps, because Protocol Buffers do not define the order of a
//! map, and clients that change their compression. In these cases leave the body out of the fingerprint, with
//! [`RequestFingerprint::without_body`](idem_http::RequestFingerprint::without_body).

/// Compiles the first program of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod layer;
mod messages;
mod status;

pub use layer::{GrpcIdempotency, GrpcIdempotencyLayer};
