//! The protocol, the stores and the engine of `idem`. Use the crate `idem-rs`, the face, instead:
//! this one is its inside, and its paths may change between any two versions.

// Code that panics or prints is for tests, examples and benches.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

pub mod protocol;

mod context;
mod engine;
mod error;
mod expansion;
mod fingerprint;
#[cfg(feature = "http")]
pub mod http;
pub mod inspection;
mod key;
#[cfg(feature = "lambda")]
pub mod lambda;
pub mod listing;
#[cfg(feature = "message")]
pub mod message;
#[cfg(feature = "outbox")]
pub mod outbox;
mod store;
#[cfg(feature = "testing")]
pub mod testing;

pub use context::{Context, Observed, Outcome, context, observe, with_deadline};
pub use engine::{
    MAX_STEP_NAME_BYTES, Operation, RecoveringOperation, Recovery, Step, StepName, TerminalOperation, step,
};
pub use error::{CallId, Error, NotStored, StepError, StoreError, StoreErrorKind};
pub use key::{
    Key, KeyBuilder, KeyDigest, KeyError, KeyPart, MAX_KEY_BYTES, MAX_SCOPE_BYTES, RecordKey, Scope,
};
pub use protocol::{Fence, Fingerprint, OnCrash};
#[cfg(any(feature = "zstd", feature = "encryption"))]
pub use store::Transformed;
#[cfg(feature = "cache")]
pub use store::{CacheCounts, Cached, Caching};
#[cfg(feature = "zstd")]
pub use store::{Compressed, Compression};
#[cfg(feature = "encryption")]
pub use store::{DigestedKeys, Encrypted, Encryption, KeyDigests, KeyRing, SealError};
pub use store::{DynStore, MemoryStore, Store, Waiters};
#[cfg(feature = "dynamodb")]
pub use store::{DynamoDbStore, DynamoDbStoreBuilder};
#[cfg(feature = "postgres")]
pub use store::{PostgresStore, PostgresStoreBuilder};
#[cfg(feature = "redis")]
pub use store::{RedisStore, RedisStoreBuilder};
#[cfg(feature = "sqlite")]
pub use store::{SqliteStore, SqliteStoreBuilder};

/// What generated code calls. Not a public interface.
#[doc(hidden)]
pub mod __private {
    pub use crate::expansion::*;
}
