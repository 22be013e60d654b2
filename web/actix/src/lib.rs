//! The `Idempotency-Key` header for actix-web, with the rules of `idem::http`: a repeated request under the
//! same key gets the first response, and its handler does not run again.
//!
//! [`Idempotency`] is a middleware. It has the settings of an
//! [`IdempotencyLayer`](idem_http::IdempotencyLayer).
//!
//! ```no_run
//! use actix_web::{App, HttpServer, web};
//! use idem::MemoryStore;
//! use idem::http::IdempotencyLayer;
//! use idem_actix::Idempotency;
//!
//! async fn pay(order: String) -> String {
//!     format!("paid {order}")
//! }
//!
//! #[actix_web::main]
//! async fn main() -> std::io::Result<()> {
//! // Built once, so that all workers of the server share the layer's store and its counts.
//!     let layer = IdempotencyLayer::shared_by_all_clients(MemoryStore::new());
//!     HttpServer::new(move || {
//!         App::new().wrap(Idempotency::new(layer.clone())).route("/payments", web::post().to(pay))
//!     })
//!     .bind(("127.0.0.1", 8080))?
//!     .run()
//!     .await
//! }
//! ```
//!
//! Differences from tower, because of actix-web:
//!
//! - If a handler panics, takes too long or loses its key, the answer comes in an [`actix_web::Error`], and
//!   middleware outside gets this error as an `Err`. After a panic or a timeout, the answer is 500
//!   `handler-failed`.
//! - An `Err` of middleware *inside* this one goes through unchanged and counts as a crash (see
//!   [`Builder::on_crash`](idem_http::Builder::on_crash)). A handler's `Err` is a response, and its status
//!   decides whether it is recorded.
//! - There are no trailers.
//! - If the body of a request is malformed, actix-web closes the connection. The request claims no key.
//! - A client that sends `Expect: 100-continue` gets `100 Continue` before this middleware sees its request.
//! - A handler runs on the worker of its request. A server that stops ends its workers, and with them the
//!   handlers whose clients have gone away. So drain before the server stops: [`Idempotency`] shows how.

/// Compiles the first program of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod body;
mod convert;
mod middleware;

pub use middleware::{Idempotency, IdempotencyMiddleware, extensions};
