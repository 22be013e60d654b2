//! The errors of the outbox. None contains the content of a message.

use idem_core::StoreError;

/// Why an operation of an outbox failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutboxError {
    /// The connection has no open transaction, so the message could not be committed with other writes.
    #[error("no transaction is open on the connection: begin one with sqlx's `begin` and hand it over")]
    NoTransaction,
    /// The topic cannot be used.
    #[error("a topic must have 1 to 200 bytes and no control character: choose a short stable name")]
    InvalidTopic,
    /// The id cannot be used.
    #[error("an id must be 1 to 128 visible ASCII characters: use `Context::downstream_key`, or a UUID")]
    InvalidId,
    /// The payload is larger than the outbox accepts.
    #[error(
        "the payload is {size} bytes and the outbox takes at most {limit}; enqueue a reference to it instead"
    )]
    #[non_exhaustive]
    TooLarge {
        /// The size of the payload in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A setting is invalid.
    #[error("{0}")]
    Configuration(String),
    /// The database failed. If `enqueue` returned this error, the caller's transaction cannot be committed.
    #[error(transparent)]
    Database(#[from] StoreError),
}

impl OutboxError {
    /// Whether a retry in a new transaction may succeed.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Database(error) => error.is_transient(),
            _ => false,
        }
    }
}
