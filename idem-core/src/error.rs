//! What a store reports when an operation fails or its outcome is unknown.
//!
//! Owns [`StoreError`]. No text here ever holds a key or a result.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// What kind of failure a [`StoreError`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store cannot be used now. The operation was **not** applied.
    Unavailable,
    /// It is not known whether the store applied the operation. Send the same request with the same owner to
    /// find out.
    OutcomeUnknown,
    /// The result, or the step, is larger than this store takes. Nothing was applied.
    TooLarge,
    /// The value under this key is not a readable record, or the store's file is damaged. Nothing was
    /// applied.
    CorruptRecord,
    /// The store is set up in a way that cannot work. A retry does not help.
    Configuration,
    /// The store was used with a key ring or a secret that this process does not have. Nothing was applied.
    /// No body runs, even if the operation fails open, because an earlier call may have run the body already.
    WrongKeys,
}

/// Why an operation of a store failed, or why its outcome is unknown. Cheap to clone.
///
/// A store makes an error with a constructor such as [`unavailable`](Self::unavailable). `detail` must say
/// what happened and what to do, and must not hold a key or a result.
#[derive(Clone, Debug)]
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

    /// A [`StoreErrorKind::TooLarge`]: a result has `size` bytes, and the store takes at most `limit`.
    #[must_use]
    pub fn too_large(size: usize, limit: usize) -> Self {
        Self::new(
            StoreErrorKind::TooLarge,
            format!("the result is {size} bytes and this store takes at most {limit}"),
        )
    }

    /// A [`StoreErrorKind::TooLarge`]: a step of `size` bytes does not fit beside the recorded steps. `limit`
    /// is the largest size of a record with all its steps.
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

    /// A [`StoreErrorKind::WrongKeys`].
    #[must_use]
    pub fn wrong_keys(detail: impl Into<Arc<str>>) -> Self {
        Self::new(StoreErrorKind::WrongKeys, detail)
    }

    fn new(kind: StoreErrorKind, detail: impl Into<Arc<str>>) -> Self {
        Self { kind, detail: detail.into(), source: None }
    }

    /// The same error, with the error of the client library as its source.
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

    /// Whether the store may have applied the operation in spite of the error.
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
            StoreErrorKind::WrongKeys => "the store was used under other keys: ",
        })?;
        f.write_str(&self.detail)
    }
}

impl StdError for StoreError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}
