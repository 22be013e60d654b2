//! The protocol, the stores and the engine of `idem`. Use the crate `idem-rs`, the face, instead:
//! this one is its inside, and its paths may change between any two versions.

pub mod protocol;

mod error;
mod key;
mod store;

pub use error::{CallId, Error, NotStored, StoreError, StoreErrorKind};
pub use key::{
    Key, KeyBuilder, KeyDigest, KeyError, KeyPart, MAX_KEY_BYTES, MAX_SCOPE_BYTES, RecordKey, Scope,
};
#[cfg(feature = "sqlite")]
pub use store::{SqliteStore, SqliteStoreBuilder};
pub use store::{Store, Waiters};
