//! Makes async functions safe to call twice.

#[doc(inline)]
pub use idem_runtime::{
    CallId, Context, Error, Fence, Fingerprint, Key, KeyBuilder, KeyDigest, KeyError, KeyPart, MAX_KEY_BYTES,
    MAX_SCOPE_BYTES, MemoryStore, NotStored, Observed, OnCrash, Operation, Outcome, RecordKey, Scope, Store,
    StoreError, StoreErrorKind, TerminalOperation, Waiters, context, observe, protocol,
};

#[cfg(feature = "macros")]
#[doc(inline)]
pub use idem_macros::{KeyPart, idempotent};

#[cfg(feature = "sqlite")]
#[doc(inline)]
pub use idem_runtime::{SqliteStore, SqliteStoreBuilder};

#[cfg(feature = "testing")]
#[doc(inline)]
pub use idem_runtime::testing;

#[doc(hidden)]
pub use idem_runtime::__private;
