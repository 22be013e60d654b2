//! The client's half of the `Idempotency-Key` header: one key for each logical request, kept over its retries, and the
//! server's answers interpreted. For servers with `idem::http`, and for all others that accept the header: Stripe,
//! PayPal, Adyen, Square.
//!
//! ```no_run
//! # #[cfg(feature = "reqwest")]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use idem_client::{IdempotencyMiddleware, Key, Policy};
//! use reqwest_middleware::ClientBuilder;
//!
//! let client = ClientBuilder::new(reqwest::Client::new())
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
//! | the header already | that one, unchanged |
//! | a [`Key`] among its extensions | that one |
//! | none, and is sent inside an idempotent body (feature `idem`) | `context().downstream_key(..)` of its method, host and path: the same at every attempt of the body |
//! | none of these | a new random one, kept over retries, and lost when the process ends |
//!
//! Only `POST` and `PATCH` requests get a key and are repeated, unless [`Policy::methods`] says otherwise; all others
//! pass unchanged.
//!
//! Inside an idempotent body, two requests of the same method to the same path have the same key: the server answers
//! the second one with the first one's response, or refuses it with 422 if it differs. Give each a [`Key::named`].
//!
//! # What an answer means
//!
//! | the server answers | the client |
//! |---|---|
//! | not at all, or not completely: the connection broke, or [`Policy::attempt_timeout`] is over | sends the request again, under the same key, after a pause |
//! | 409 with `Retry-After` (in flight), 425, 429 | sends the request again when the server says, or after a pause |
//! | 408, 500, 502, 503, 504 | the same |
//! | 409 without `Retry-After` (in doubt, response not stored), 422 (key reused), and every other | returns the answer: [`Problem`] reads its body |
//!
//! Pauses grow from 100 ms to 10 s, and jitter adds up to the same time again. A pause is never shorter than
//! `Retry-After`. When [`Policy::patience`] or [`Policy::attempts`] is used up, the last answer or error is returned.
//! Then it is not known what happened to the request, and it may only be sent again *under the same key*: keep the key
//! with [`Key::derived`] or [`Key::new`].
//!
//! The middleware for reqwest reads an answer completely before it returns it, unless [`Policy::streamed_answers`] is
//! set. The tower layer cannot do that: if a body breaks off there, the program must send the request again, under the
//! same [`Key`].
//!
//! A request whose body cannot be cloned (a stream) is sent once, with its key.
//!
//! # Cancellation
//!
//! Dropping the call sends nothing more; a request that was sent may have been processed.

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
pub use reqwest::IdempotencyMiddleware;
#[cfg(feature = "tower")]
#[cfg_attr(docsrs, doc(cfg(feature = "tower")))]
pub use tower::{IdempotencyClient, IdempotencyClientLayer};
