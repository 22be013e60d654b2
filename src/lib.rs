//! Makes async functions safe to call twice.
//!
//! One attribute makes a key from the arguments, claims it in a shared store, runs the body and records the
//! result. After that, every duplicate, retry and redelivery gets the recorded result.
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
//! * `#[idempotent]` (feature `macros`), and [`Operation`], which makes the same calls without the attribute.
//! * [`MemoryStore`]. With their features: `SqliteStore`, `RedisStore`, `PostgresStore`, `MySqlStore`,
//!   `DynamoDbStore`, `NatsKvStore`, `BucketStore` and `FolderStore`. [`Store`] is the trait for your own
//!   stores. A [`DynStore`] is a store that the program chooses at run time.
//! * `http` (feature `http`): the `Idempotency-Key` header as a tower layer. `tower` (feature `tower`):
//!   idempotent calls for every other tower service.
//! * `message` (feature `message`): a consumer of a broker's messages. `lambda` (feature `lambda`): batches
//!   of AWS Lambda.
//! * `outbox` (feature `outbox`): messages that commit with a PostgreSQL transaction, and a relay that
//!   publishes them.
//! * [`context`]: what a running body can learn about its call. [`observe`]: what a caller can learn about a
//!   call.
//! * [`step`]: recovery points of a body. [`Operation::recover`] and the attribute's `recover`: a function
//!   that finds out what an unfinished run did.
//! * [`drain`]: waits for background work at the end of a program. [`LateRecording`]: what happens to results
//!   that the store did not record in time.
//! * [`protocol`]: the rules of records and claims, as pure functions.
//! * [`listing`] and [`inspection`]: the records of a store, and checks of its server. The command `idem`
//!   (package `idem-cli`) shows both.
//! * `testing` (feature `testing`): crash tests, a store that fails on purpose, sample errors, the catalogue
//!   test, and the conformance kit for stores.
//!
//! # Guarantee
//!
//! | you write | bodies started | results recorded | effects |
//! |---|---|---|---|
//! | `#[idempotent(..)]` | once, and once more after each crash | exactly one; every caller sees it | at least once; exactly once if the downstream service accepts our derived key |
//! | `on_crash = "in_doubt"` | at most once | at most one | at most once; after a crash the key is in doubt, and the body does not run again |
//! | `transaction = tx` | once, and once more after each crash | exactly one, in the caller's transaction | exactly once, for what is written through `tx` |
//! | `idem::step(..)` in a body | the step: once; again only if it failed, or if the body ended before the store acknowledged the step's record | one for each step | at least once; never again once the step's record is acknowledged |
//!
//! An error that is not terminal, or a value that `record_if` refuses, releases the key, so the next call
//! starts the body again. The page `docs/guarantees.md` of the book says what these words mean and what they
//! do not cover.
//!
//! # The book
//!
//! The folder `docs` of the repository is a book: a tutorial, a guide for each use, a page for each store, a
//! reference of options, keys, errors, events and the command `idem`, and a runbook.
//!
//! # Events and metrics
//!
//! Every call is a `tracing` span. The span and its events have the target `idem`. The feature `metrics` adds
//! counters, gauges and histograms. The page `docs/events.md` of the book lists them.
//!
//! # Runtime
//!
//! A call needs a tokio runtime with time enabled.

#![cfg_attr(docsrs, feature(doc_cfg))]
// Code that panics or prints is for tests, examples and benches.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

#[doc(inline)]
pub use idem_core::{
    Fence, Fingerprint, Key, KeyBuilder, KeyDigest, KeyError, KeyPart, MAX_KEY_BYTES, MAX_SCOPE_BYTES,
    OnCrash, RecordKey, Scope, Store, StoreError, StoreErrorKind, Waiters, inspection, listing, protocol,
};
#[doc(inline)]
pub use idem_runtime::{
    Attempt, Begun, CallId, Context, Disabled, Drained, DynStore, Error, ErrorKind, Interrupted,
    LateRecording, Loss, MAX_STEP_NAME_BYTES, MemoryStore, NotStored, Observed, Operation, Outcome, Recovery,
    Replayed, ResultRules, RetryAfter, RulesFor, Step, StepError, StepName, Unrecorded, WithRecover, context,
    drain, observe, observer, step, with_deadline,
};

#[cfg(feature = "macros")]
#[doc(inline)]
pub use idem_macros::{KeyPart, idempotent};
#[cfg(feature = "macros")]
#[doc(inline)]
pub use idem_runtime::{Catalogue, CatalogueError, CatalogueKeyPart, CatalogueOperation, catalogue};

#[cfg(feature = "signal")]
#[doc(inline)]
pub use idem_runtime::terminated;

#[cfg(feature = "http")]
#[doc(inline)]
pub use idem_http as http;
#[cfg(feature = "message")]
#[doc(inline)]
pub use idem_messages as message;
#[cfg(feature = "lambda")]
#[doc(inline)]
pub use idem_messages::lambda;
#[cfg(feature = "tower")]
#[doc(inline)]
pub use idem_tower as tower;
#[cfg(any(feature = "cache", feature = "encryption", feature = "zstd"))]
#[doc(inline)]
pub use idem_wrappers::StoreExt;
#[cfg(any(feature = "encryption", feature = "zstd"))]
#[doc(inline)]
pub use idem_wrappers::Transformed;
#[cfg(feature = "cache")]
#[doc(inline)]
pub use idem_wrappers::{Cached, Caching};
#[cfg(feature = "zstd")]
#[doc(inline)]
pub use idem_wrappers::{Compressed, Compression};
#[cfg(feature = "encryption")]
#[doc(inline)]
pub use idem_wrappers::{DigestedKeys, Encrypted, Encryption, KeyDigests, KeyRing, Layers};

#[cfg(feature = "dynamodb")]
#[doc(inline)]
pub use idem_dynamodb::{DynamoDbStore, DynamoDbStoreBuilder};
#[cfg(feature = "mysql")]
#[doc(inline)]
pub use idem_mysql::{MySqlStore, MySqlStoreBuilder};
#[cfg(feature = "nats-kv")]
#[doc(inline)]
pub use idem_nats_kv::{NatsKvStore, NatsKvStoreBuilder};
#[cfg(feature = "object")]
#[doc(inline)]
pub use idem_object::{BucketStore, BucketStoreBuilder, FolderStore};
#[cfg(feature = "outbox")]
#[doc(inline)]
pub use idem_outbox as outbox;
#[cfg(feature = "postgres")]
#[doc(inline)]
pub use idem_postgres::{PostgresStore, PostgresStoreBuilder, driver as postgres_driver};
#[cfg(feature = "redis")]
#[doc(inline)]
pub use idem_redis::{RedisStore, RedisStoreBuilder};
#[cfg(feature = "sqlite")]
#[doc(inline)]
pub use idem_sqlite::{SqliteStore, SqliteStoreBuilder};

#[cfg(feature = "testing")]
#[doc(inline)]
pub use idem_testing as testing;

#[doc(hidden)]
pub use idem_runtime::__private;

#[cfg(all(doctest, feature = "macros", feature = "sqlite"))]
#[doc = include_str!("../README.md")]
struct Readme;
