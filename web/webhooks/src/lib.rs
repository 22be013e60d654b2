//! Webhooks that are handled once, however often the sender repeats them.
//!
//! [`WebhookLayer`] is a tower layer. It checks the sender's signature over the raw body before anything
//! parses the body. It uses the id of the delivery as the idempotency key. Its answers make the sender repeat
//! only deliveries that need another try. The handler gets the id as a [`Delivery`].
//!
//! ```
//! use axum::Router;
//! use axum::body::Bytes;
//! use axum::routing::post;
//! use idem::MemoryStore;
//! use idem_webhooks::{Delivery, Sender, WebhookLayer};
//!
//! async fn paid(delivery: Delivery, body: Bytes) {
//! // Send the goods.
//!     let _ = (delivery.id(), body);
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let stripe = Sender::stripe(["whsec_from_the_dashboard"])?;
//! let app: Router = Router::new()
//!     .route("/stripe", post(paid))
//!     .layer(WebhookLayer::new(stripe, MemoryStore::new())?);
//! # let _ = app;
//! # Ok(())
//! # }
//! ```
//!
//! | the delivery | gets |
//! |---|---|
//! | is new | the handler's answer; 2xx is kept for 30 days |
//! | was answered with 2xx | that answer again, or an empty 200 if the answer streamed or was too large to keep; the handler does not run |
//! | was answered otherwise, or its handler crashed | the answer of a new run of the handler |
//! | is being handled | the handler's answer, if that comes within 5 s; otherwise 409 with `Retry-After`, and the sender sends the delivery again |
//! | has no valid signature, or a signature that is too old | 401; the handler does not run |
//! | is signed and has no id | 400; only with Slack, a request without an event reaches the handler each time |
//! | is larger than 2 MiB (unless set) | 413 |
//! | comes while the store is down | 503, and the sender sends the delivery again |
//!
//! # Limits
//!
//! The layer puts the id into the header `Idempotency-Key`, and replaces a value that the sender may have
//! sent. A layer of `idem-http` inside this one would claim the id a second time, so add no such layer.
//!
//! GitHub signs the body, but neither a time nor the id of the delivery. So anyone who has seen a delivery
//! can send it again under another id. Stripe, Slack and Standard Webhooks sign both the time and the id.

#![cfg_attr(docsrs, feature(doc_cfg))]
// Only tests may panic or print.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

/// Compiles the program of the README.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../README.md")]
struct Readme;

mod delivery;
mod layer;
mod sender;
mod signature;

pub use delivery::Delivery;
pub use layer::{WebhookLayer, Webhooks};
pub use sender::{Refused, SecretError, Sender};
