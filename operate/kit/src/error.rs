//! Why something was not done: a kind, for exit codes and HTTP statuses, and a text for the person.

use idem_core::{StoreError, StoreErrorKind};

/// The kinds of [`Error`]. Their numbers are the exit codes of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// There is no such record.
    Absent = 1,
    /// The request is wrong: a name, a result or an option.
    Usage = 2,
    /// The state of the record or of the store does not allow the action.
    Refused = 3,
    /// The store cannot be reached, or did not report the outcome.
    Unreachable = 4,
    /// The store cannot be used like this: rights, layout, keys, a record that cannot be read.
    Unusable = 5,
    /// The person did not confirm the decision.
    Unconfirmed = 6,
}

/// Why something was not done. The text has no key and no result.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    kind: Kind,
    text: String,
}

impl Error {
    /// An error with this text.
    pub fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// The error for a wrong request.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::new(Kind::Usage, text)
    }

    /// The kind.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        let kind = match error.kind() {
            StoreErrorKind::Unavailable | StoreErrorKind::OutcomeUnknown => Kind::Unreachable,
            _ => Kind::Unusable,
        };
        Self::new(kind, error.to_string())
    }
}

/// The result of an action, or of reading a store.
pub type Result<T> = std::result::Result<T, Error>;
