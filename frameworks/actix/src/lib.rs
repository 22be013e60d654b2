//! The `Idempotency-Key` header for actix-web, as `idem::http` has it for tower: a repeated request under the same key gets
//! the first response, and its handler does not run again.
//!
//! [`Idempotency`] is a middleware. Its settings are those of an [`IdempotencyLayer`](idem_runtime::http::IdempotencyLayer).
//!
//! ```no_run
//! # use idem_runtime as idem;
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
//!     // Built once: the workers of a server share its store and its counts.
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
//! What differs from tower, because actix-web does:
//!
//! - A handler that panics or takes too long is answered 500 `handler-failed` by an [`actix_web::Error`], which middleware
//!   outside sees as `Err`.
//! - An `Err` of middleware *inside* this one passes through and releases the key. A handler's `Err` is a response and is
//!   recorded by its status.
//! - There are no trailers.
//! - A request whose body is malformed is ended by actix-web: its connection is closed. It takes no key.
//! - A client that sends `Expect: 100-continue` gets `100 Continue` before this middleware sees its request.
//! - A handler runs on the worker of its request. A server that stops ends its workers, and with them the handlers whose
//!   clients are gone: drain first. [`Idempotency`] shows how.

mod body;
mod convert;
mod middleware;

pub use middleware::{Idempotency, IdempotencyMiddleware};
