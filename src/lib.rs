//! Makes async functions safe to call twice.
//!
//! One attribute takes a key from the arguments, claims it in a shared store, runs the body and
//! keeps the result; every duplicate, retry, redelivery and takeover after a crash gets that same
//! result.
//!
//! ```
//! # #[cfg(feature = "macros")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), idem::Error> {
//! use idem::{MemoryStore, idempotent};
//!
//! #[idempotent(key = "order/{order}", ttl = "24h", store = store, fingerprint = amount)]
//! async fn charge(store: &MemoryStore, order: u64, amount: u64) -> Result<String, idem::Error> {
//!     // Charge the card here: this runs once for an order.
//!     Ok(format!("receipt for {amount} cents"))
//! }
//!
//! let store = MemoryStore::new();
//! let first = charge(&store, 42, 1999).await?;
//! let again = charge(&store, 42, 1999).await?;
//! assert_eq!(first, again);
//! assert!(matches!(charge(&store, 42, 1).await, Err(idem::Error::Mismatch { .. })));
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "macros"))]
//! # fn main() {}
//! ```
//!
//! # What is here
//!
//! * `#[idempotent]` (feature `macros`) and [`Operation`], the same policy without the attribute.
//! * [`MemoryStore`], and behind features of their names `SqliteStore`, `RedisStore`, `PostgresStore` and
//!   `DynamoDbStore`; [`Store`] to write another, [`DynStore`] to choose one when the program runs.
//! * `http` (feature `http`): the `Idempotency-Key` header as a tower layer.
//! * `message` and `lambda` (features): a consumer of a broker's messages, and batches of AWS Lambda.
//! * [`context`] for a running body, [`observe`] for a caller.
//! * [`protocol`]: the rules, as pure functions.
//! * `testing` (feature `testing`): a store that fails on purpose, and the conformance kit.
//!
//! # Guarantee
//!
//! | written | bodies started | results recorded | effects |
//! |---|---|---|---|
//! | `#[idempotent(..)]` | once, and once more after each crash | exactly one; every caller sees it | at least once; exactly once where the downstream takes our derived key |
//! | `on_crash = "in_doubt"` | at most once | at most one | at most once; a crash is reported, never repeated |
//! | `transaction = tx` | as the first row | exactly one, in the caller's transaction | exactly once, for what is written through `tx` |
//!
//! `docs/guarantees.md` in the repository says what stands behind these words and what they do not
//! cover.
//!
//! # Events and metrics
//!
//! Every call is a `tracing` span `idempotent_call`, and says what happens by events of the target
//! `idem`. Both have the fields `operation` (the scope), `key` (its digest) and `attempt`; an event has
//! its name in the field `event`:
//!
//! | level | events |
//! |---|---|
//! | debug | `claimed`, `completed`, `released`, `replayed`, `busy`, `waited` (with `waited_ms`) |
//! | warn | `recovered`, `mismatch`, `exhausted`, `renewal_failed`, `release_failed`, `store_failed`, `unprotected` |
//! | error | `lease_lost`, `in_doubt`, `unrecorded`, `undecodable` |
//!
//! A `RedisStore` that connects says by the same target what is not right with its server: `may_evict` and
//! `not_persistent` (warn), `unchecked` (debug).
//!
//! So does a `message::Consumer`: `message_panicked` (error), `message_rejected` with a `reason`, `broker_failed`,
//! `stream_failed` and `ttl_below_horizon` (warn).
//!
//! With the feature `metrics`: the counter `idem_events_total` (labels `operation`, `event`), and the
//! histograms `idem_body_seconds` and `idem_wait_seconds` (label `operation`).
//!
//! # Runtime
//!
//! A call needs a tokio runtime with time enabled.

// Code that panics or prints is for tests, examples and benches.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

#[doc(inline)]
pub use idem_runtime::{
    CallId, Context, DynStore, Error, Fence, Fingerprint, Key, KeyBuilder, KeyDigest, KeyError, KeyPart,
    MAX_KEY_BYTES, MAX_SCOPE_BYTES, MemoryStore, NotStored, Observed, OnCrash, Operation, Outcome, RecordKey,
    Scope, Store, StoreError, StoreErrorKind, TerminalOperation, Waiters, context, observe, protocol,
    with_deadline,
};

#[cfg(feature = "macros")]
#[doc(inline)]
pub use idem_macros::{KeyPart, idempotent};

#[cfg(feature = "zstd")]
#[doc(inline)]
pub use idem_runtime::Compressed;

#[cfg(feature = "dynamodb")]
#[doc(inline)]
pub use idem_runtime::{DynamoDbStore, DynamoDbStoreBuilder};
#[cfg(feature = "postgres")]
#[doc(inline)]
pub use idem_runtime::{PostgresStore, PostgresStoreBuilder};
#[cfg(feature = "redis")]
#[doc(inline)]
pub use idem_runtime::{RedisStore, RedisStoreBuilder};

#[cfg(feature = "sqlite")]
#[doc(inline)]
pub use idem_runtime::{SqliteStore, SqliteStoreBuilder};

#[cfg(feature = "http")]
#[doc(inline)]
pub use idem_runtime::http;

#[cfg(feature = "lambda")]
#[doc(inline)]
pub use idem_runtime::lambda;

#[cfg(feature = "message")]
#[doc(inline)]
pub use idem_runtime::message;

#[cfg(feature = "testing")]
#[doc(inline)]
pub use idem_runtime::testing;

#[doc(hidden)]
pub use idem_runtime::__private;

#[cfg(all(doctest, feature = "macros", feature = "sqlite"))]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(all(doctest, feature = "macros"))]
#[doc = include_str!("../docs/attribute.md")]
struct AttributePage;

#[cfg(all(doctest, feature = "http"))]
#[doc = include_str!("../docs/http.md")]
struct HttpPage;

#[cfg(all(doctest, feature = "macros", feature = "message"))]
#[doc = include_str!("../docs/messages.md")]
struct MessagesPage;
