//! What can go wrong with a call, said to the person who meets it.
//!
//! Owns [`Error`] and [`StoreError`]. No text here ever holds a key or a result.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::key::{KeyDigest, KeyError, RecordKey};
use crate::protocol::Tombstone;

/// Which call an error is about: the operation's scope and the digest of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallId {
    operation: Arc<str>,
    key: KeyDigest,
}

impl CallId {
    /// The scope of the operation.
    #[must_use]
    pub fn operation(&self) -> &str {
        &self.operation
    }

    /// The digest of the key, as logs and spans show it.
    #[must_use]
    pub const fn key(&self) -> KeyDigest {
        self.key
    }
}

impl From<&RecordKey> for CallId {
    fn from(record: &RecordKey) -> Self {
        Self { operation: Arc::from(record.scope().as_str()), key: record.digest() }
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (key digest {})", self.operation, self.key)
    }
}

/// Why a call did not run its body, or has no result to give.
///
/// A body's own error is never wrapped in this: a function returns its own error type, made from
/// this one by `From`.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The same call is being made elsewhere.
    #[error("{call} is in flight; try again in {retry_after:?}, or set `wait` to wait for its result")]
    #[non_exhaustive]
    InFlight {
        /// Which call.
        call: CallId,
        /// What is left of the other's lease: enough to wait, if it is not renewed.
        retry_after: Duration,
    },
    /// The last attempt failed, and the next is not due.
    #[error("{call} failed and is not due to be tried again for {retry_after:?}")]
    #[non_exhaustive]
    NotDue {
        /// Which call.
        call: CallId,
        /// How long until it is due.
        retry_after: Duration,
    },
    /// The key was used with other arguments.
    #[error("{call} was called with other arguments under the same key; use a new key for a new request")]
    #[non_exhaustive]
    Mismatch {
        /// Which call.
        call: CallId,
    },
    /// A worker went away under `on_crash = "in_doubt"`.
    #[error(
        "{call} is in doubt: a worker went away in the middle of it; find out what happened and resolve it"
    )]
    #[non_exhaustive]
    InDoubt {
        /// Which call.
        call: CallId,
    },
    /// All attempts were used without a result.
    #[error("{call} used up its {attempts} attempts without a result; forget the key to allow more")]
    #[non_exhaustive]
    Exhausted {
        /// Which call.
        call: CallId,
        /// How many there were.
        attempts: u32,
    },
    /// The claim was taken over while the body ran, and no result is recorded yet.
    #[error(
        "{call} lost its lease to another worker; call again for the recorded result, or set a longer `lease`"
    )]
    #[non_exhaustive]
    LeaseLost {
        /// Which call.
        call: CallId,
    },
    /// It ran before, but its result is not in the store.
    #[error("{call} has run, and its result is not stored ({reason}); it will not run again")]
    #[non_exhaustive]
    ResultNotStored {
        /// Which call.
        call: CallId,
        /// Why it is not there.
        reason: NotStored,
    },
    /// The recorded result is not one of the type the function returns.
    #[error(
        "{call} has run, but its recorded result does not decode into the return type; it is kept and will not run again"
    )]
    #[non_exhaustive]
    Undecodable {
        /// Which call.
        call: CallId,
    },
    /// The key, or a value in it, is empty. The body did not run.
    #[error("{operation}: {}", KeyError::Missing)]
    #[non_exhaustive]
    MissingKey {
        /// The scope of the operation.
        operation: Arc<str>,
    },
    /// The key or the scope cannot be used. The body did not run.
    #[error("{operation}: {source}")]
    #[non_exhaustive]
    InvalidKey {
        /// The scope of the operation.
        operation: Arc<str>,
        /// Why not.
        source: KeyError,
    },
    /// The operation is set up in a way that cannot work. The body did not run.
    #[error("{operation}: {detail}")]
    #[non_exhaustive]
    Configuration {
        /// The scope of the operation.
        operation: Arc<str>,
        /// What is wrong, and what to do.
        detail: Arc<str>,
    },
    /// The body ran, but its result could not be recorded in the caller's transaction. What it wrote
    /// there is undone, and the transaction cannot be committed any more.
    #[error(
        "{call}: its result cannot be recorded in this transaction: {source}; roll back, begin a new transaction and call again"
    )]
    #[non_exhaustive]
    NotRecorded {
        /// Which call.
        call: CallId,
        /// Why not.
        source: StoreError,
    },
    /// The store failed before the body ran.
    #[error("{call}: {source}; the body did not run")]
    #[non_exhaustive]
    Store {
        /// Which call.
        call: CallId,
        /// What the store said.
        source: StoreError,
    },
}

impl Error {
    /// A stable word for the kind of error, for metrics and for programs that print it.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::InFlight { .. } => "in_flight",
            Self::NotDue { .. } => "not_due",
            Self::Mismatch { .. } => "mismatch",
            Self::InDoubt { .. } => "in_doubt",
            Self::Exhausted { .. } => "exhausted",
            Self::LeaseLost { .. } => "lease_lost",
            Self::ResultNotStored { .. } => "result_not_stored",
            Self::Undecodable { .. } => "undecodable",
            Self::MissingKey { .. } => "missing_key",
            Self::InvalidKey { .. } => "invalid_key",
            Self::Configuration { .. } => "configuration",
            Self::NotRecorded { .. } => "not_recorded",
            Self::Store { .. } => "store",
        }
    }

    /// How long to wait before the same call has a chance, where that is known.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::InFlight { retry_after, .. } | Self::NotDue { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }

    pub(crate) fn key(operation: &str, error: KeyError) -> Self {
        let operation = Arc::from(operation);
        match error {
            KeyError::Missing => Self::MissingKey { operation },
            source => Self::InvalidKey { operation, source },
        }
    }

    pub(crate) fn configuration(operation: &str, detail: impl Into<Arc<str>>) -> Self {
        Self::Configuration { operation: Arc::from(operation), detail: detail.into() }
    }
}

/// Why a result that was made is not in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotStored {
    /// It was larger than the operation or the store takes.
    TooLarge,
    /// It could not be encoded.
    NotEncodable,
}

impl From<Tombstone> for NotStored {
    fn from(tombstone: Tombstone) -> Self {
        match tombstone {
            Tombstone::TooLarge => Self::TooLarge,
            Tombstone::NotEncodable | Tombstone::Exhausted => Self::NotEncodable,
        }
    }
}

impl fmt::Display for NotStored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLarge => "it was too large",
            Self::NotEncodable => "it could not be encoded",
        })
    }
}

/// What kind of failure a [`StoreError`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store cannot be used now. The operation was **not** applied.
    Unavailable,
    /// The store did not say whether the operation was applied. Asking again with the same owner
    /// finds out.
    OutcomeUnknown,
    /// The result, or the step, is larger than this store takes. Nothing was applied.
    TooLarge,
    /// What the store holds under this key is not a record. Nothing was applied.
    CorruptRecord,
    /// The store is set up in a way that cannot work, and asking again will not help.
    Configuration,
}

/// What a store says when it cannot do what was asked. Cheap to clone.
///
/// A store's author makes one by the function named after its kind. The text must say what
/// happened and what to do, and must not hold a key or a result.
#[derive(Clone)]
pub struct StoreError {
    kind: StoreErrorKind,
    detail: Arc<str>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl StoreError {
    /// A [`StoreErrorKind::Unavailable`].
    #[must_use]
    pub fn unavailable(detail: impl Into<Arc<str>>) -> Self {
        Self::new(StoreErrorKind::Unavailable, detail)
    }

    /// A [`StoreErrorKind::OutcomeUnknown`].
    #[must_use]
    pub fn outcome_unknown(detail: impl Into<Arc<str>>) -> Self {
        Self::new(StoreErrorKind::OutcomeUnknown, detail)
    }

    /// A [`StoreErrorKind::TooLarge`]: a result of `size` bytes where `limit` is the most.
    #[must_use]
    pub fn too_large(size: usize, limit: usize) -> Self {
        Self::new(
            StoreErrorKind::TooLarge,
            format!("the result is {size} bytes and this store takes at most {limit}"),
        )
    }

    /// A [`StoreErrorKind::TooLarge`]: a step of `size` bytes that does not fit beside those recorded, where
    /// `limit` is the most for all of them and their record.
    #[must_use]
    pub fn no_room_for_step(size: usize, limit: usize) -> Self {
        Self::new(
            StoreErrorKind::TooLarge,
            format!(
                "the step is {size} bytes and does not fit beside the steps recorded before it: this store takes \
                 {limit} bytes in a record; record less in each step, or fewer"
            ),
        )
    }

    /// A [`StoreErrorKind::CorruptRecord`].
    #[must_use]
    pub fn corrupt_record(detail: impl Into<Arc<str>>) -> Self {
        Self::new(StoreErrorKind::CorruptRecord, detail)
    }

    /// A [`StoreErrorKind::Configuration`].
    #[must_use]
    pub fn configuration(detail: impl Into<Arc<str>>) -> Self {
        Self::new(StoreErrorKind::Configuration, detail)
    }

    fn new(kind: StoreErrorKind, detail: impl Into<Arc<str>>) -> Self {
        Self { kind, detail: detail.into(), source: None }
    }

    /// The same error with the client's own beneath it.
    #[must_use]
    pub fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// What kind of failure it is.
    #[must_use]
    pub const fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether the operation may have been applied all the same.
    #[must_use]
    pub const fn is_outcome_unknown(&self) -> bool {
        matches!(self.kind, StoreErrorKind::OutcomeUnknown)
    }

    /// Whether the same operation may succeed later.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Unavailable | StoreErrorKind::OutcomeUnknown)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            StoreErrorKind::Unavailable => "the store is unavailable: ",
            StoreErrorKind::OutcomeUnknown => "the store did not say whether it did it: ",
            StoreErrorKind::TooLarge => "the store cannot take it: ",
            StoreErrorKind::CorruptRecord => "the store holds a record that cannot be read: ",
            StoreErrorKind::Configuration => "the store cannot be used like this: ",
        })?;
        f.write_str(&self.detail)
    }
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreError")
            .field("kind", &self.kind)
            .field("detail", &self.detail)
            .field("source", &self.source)
            .finish()
    }
}

impl StdError for StoreError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}
