//! The client's half of the `Idempotency-Key` header. Each logical request gets one key, which all its
//! retries send, and the client interprets the server's answers. Use this crate with servers that have
//! `idem::http`, and with all other servers that accept the header, such as Stripe, PayPal, Adyen and Square.
//!
//! ```no_run
//! # #[cfg(feature = "reqwest")]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use idem_client::{IdempotencyMiddleware, Key, Policy};
//! use reqwest_middleware::ClientBuilder;
//!
//! let client = reqwest::Client::builder().redirect(idem_client::redirects()).build()?;
//! let client = ClientBuilder::new(client)
//!     .with(IdempotencyMiddleware::new(Policy::new()))
//!     .build();
//! let receipt = client
//!     .post("https://api.example.com/payments")
//! // The same key after a restart of this process, because it is derived from what identifies this request.
//!     .with_extension(Key::derived(["order", "42", "charge"]))
//!     .body(r#"{"amount":1999,"currency":"EUR"}"#)
//!     .send()
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! # The key
//!
//! | the request has | its key |
//! |---|---|
//! | the header of the key | the key in the header, unchanged |
//! | no such header, but a [`Key`] among its extensions | that `Key`; a [`Key::named`] inside an idempotent body (feature `idem`) is `context().downstream_key(name)`: the same at every attempt of the body, for every host and path |
//! | neither header nor `Key`, and is sent inside an idempotent body (feature `idem`) | `context().downstream_key(..)` of its method, host and path: the same at every attempt of the body, as long as these three are the same |
//! | neither header nor `Key`, and is sent elsewhere | a new random key, kept over retries, and lost when the process ends |
//!
//! Only `POST` and `PATCH` requests, and requests with a [`Key`], get a key and are repeated. The client
//! sends all other requests once, unchanged.
//!
//! Inside an idempotent body, name each request with [`Key::named`]. Without a name, two requests with the
//! same method, host and path have the same key. The server then answers the second request with the response
//! of the first, or refuses it with 422 if the requests differ. If a body runs again, it may send a request
//! without a name to another host or path. Then the request has another key, and the provider processes it
//! twice.
//!
//! # What an answer means
//!
//! The first row that fits an answer decides.
//!
//! | the server answers | the client |
//! |---|---|
//! | not at all, or not completely: the connection broke, or [`Policy::attempt_timeout`] is over | sends the request again, under the same key, after a pause; [`Policy::retry_error`] says which errors count |
//! | `Stripe-Should-Retry` | does what the header says |
//! | `Idempotency-Replayed: true` or `Idempotent-Replayed: true`, with any status | returns the answer: it is recorded, and stays the same |
//! | 409 with `Retry-After`, or any 409 under [`Policy::stripe`] (in flight); 425, 429 | sends the request again when the server says, or after a pause |
//! | 408, 500, 502, 503, 504 | sends the request again when the server says, or after a pause |
//! | 409 without `Retry-After` (in doubt, response not stored), 422 (key reused), and every other status | returns the answer: [`Problem`] reads its body |
//!
//! Pauses grow from 100 ms to 10 s. Jitter lengthens each pause by a random time, at most by the pause
//! itself. A pause is never shorter than `Retry-After`; jitter lengthens that time by at most a quarter. When
//! [`Policy::patience`] or [`Policy::attempts`] is used up, the client returns the last answer or error. If
//! this is an error, or an answer that asks for a retry, the request may have been processed. Send the
//! request again only *under the same key*: keep the key with [`Key::derived`] or [`Key::new`].
//!
//! The middleware for reqwest reads each answer, except a `text/event-stream`, completely before it returns
//! the answer, up to [`Policy::max_answer_bytes`]. The tower layer cannot do that. If the body of an answer
//! breaks off under the tower layer, the program itself must send the request again, under the same [`Key`].
//!
//! A request whose body cannot be cloned (a stream) is sent once, with its key.
//!
//! reqwest sends the key along with every redirect that it follows. Use [`redirects`], so that the key goes
//! to no other host.
//!
//! # Cancellation
//!
//! If the call is dropped, nothing more is sent. A request that was already sent may have been processed.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

/// Compiles the programs of the README.
#[cfg(all(doctest, feature = "reqwest"))]
#[doc = include_str!("../README.md")]
struct Readme;

mod key;
mod policy;
mod problem;
#[cfg(feature = "reqwest")]
#[cfg_attr(docsrs, doc(cfg(feature = "reqwest")))]
mod reqwest;
#[cfg(any(feature = "reqwest", feature = "tower"))]
mod retry;
#[cfg(feature = "tower")]
#[cfg_attr(docsrs, doc(cfg(feature = "tower")))]
mod tower;

pub use key::Key;
pub use policy::Policy;
pub use problem::Problem;

#[cfg(feature = "reqwest")]
#[cfg_attr(docsrs, doc(cfg(feature = "reqwest")))]
pub use reqwest::{IdempotencyMiddleware, redirects};
#[cfg(feature = "tower")]
#[cfg_attr(docsrs, doc(cfg(feature = "tower")))]
pub use tower::{IdempotencyClient, IdempotencyClientLayer};
