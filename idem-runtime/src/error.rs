//! What can go wrong with a call, with texts for the person who has to act.
//!
//! Owns [`Error`]. No text here ever holds a key or a result.

mod kind;
mod step;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use idem_core::protocol::Tombstone;
use idem_core::{KeyDigest, KeyError, RecordKey};

pub(crate) use idem_core::{StoreError, StoreErrorKind};
pub use kind::ErrorKind;
pub use step::StepError;

/// Which call an error is about: the operation's scope and the digest of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallId {
    operation: Arc<str>,
    key: Option<KeyDigest>,
}

impl CallId {
    /// The scope of the operation.
    #[must_use]
    pub fn operation(&self) -> &str {
        &self.operation
    }

    /// The digest of the key, as logs and spans show it. `None` for a call without a key under
    /// `missing_key = "run"`.
    #[must_use]
    pub const fn key(&self) -> Option<KeyDigest> {
        self.key
    }

    pub(crate) fn without_key(operation: &str) -> Self {
        Self { operation: Arc::from(operation), key: None }
    }
}

impl From<&RecordKey> for CallId {
    fn from(record: &RecordKey) -> Self {
        Self { operation: Arc::from(record.scope().as_str()), key: Some(record.digest()) }
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key {
            Some(key) => write!(f, "{} (key digest {key})", self.operation),
            None => write!(f, "{} (no key)", self.operation),
        }
    }
}

/// Why a call did not run its body, or has no result to give.
///
/// It never wraps a body's own error. A function returns its own error type, which must implement
/// `From<Error>`.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call with the same key is in flight.
    #[error("{call} is in flight; {}", in_flight(*.retry_after, *.reentrant))]
    InFlight {
        /// Which call.
        call: CallId,
        /// What is left of the lease of the call in flight. After this time the key is free, unless the lease
        /// is renewed.
        retry_after: Duration,
        /// Whether the body of the call in flight makes this call, so that the call would wait for itself.
        /// This is only known if both calls are made in one task, or if
        /// [`Context::scope`](crate::Context::scope) carried the call in flight into the task of this call.
        reentrant: bool,
    },
    /// The last attempt failed, and the next is not due.
    #[error("{call} failed and is not due for another {retry_after:?}; call again then, or set `wait`")]
    NotDue {
        /// Which call.
        call: CallId,
        /// How long until the next attempt is due.
        retry_after: Duration,
    },
    /// The key was used with other arguments.
    #[error("{call} was called with other arguments under the same key; use a new key for a new request")]
    Mismatch {
        /// Which call.
        call: CallId,
    },
    /// The key is in doubt. A run under `on_crash = "in_doubt"` began and did not end, or `recover` could not
    /// find out what an earlier run did.
    #[error(
        "{call} is in doubt: a worker went away in the middle of it; find out what it did, then run `idem resolve`"
    )]
    InDoubt {
        /// Which call.
        call: CallId,
    },
    /// No attempts are left, and there is no result.
    #[error(
        "{call} used up its {attempts} attempts without a result; remove the cause, then run `idem forget` to allow more"
    )]
    Exhausted {
        /// Which call.
        call: CallId,
        /// How many attempts there were.
        attempts: u32,
    },
    /// The claim was lost while the body ran. The body was dropped, or its result is not recorded. If another
    /// call has taken over the key and records a result, later calls get that result.
    #[error("{call} lost its claim: {loss}")]
    LeaseLost {
        /// Which call.
        call: CallId,
        /// What became of the claim.
        loss: Loss,
    },
    /// The body took longer than the operation's `timeout` and was dropped. It may have had its effect.
    #[error(
        "{call} took longer than {after:?} and was stopped; it may have had its effect. Call again to run it as \
         `recovered`, or resolve it where the operation is `in_doubt`"
    )]
    TimedOut {
        /// Which call.
        call: CallId,
        /// The timeout.
        after: Duration,
    },
    /// The deadline of [`with_deadline`](crate::with_deadline) is over. The body did not run.
    #[error(
        "{call} has no time left before its deadline; the body did not run, so call again where there is time"
    )]
    NoTimeLeft {
        /// Which call.
        call: CallId,
    },
    /// The body has run before, but its result is not in the store.
    #[error(
        "{call} has run, and its result is not stored ({reason}); it will not run again: look up what it did where it \
         had its effect"
    )]
    ResultNotStored {
        /// Which call.
        call: CallId,
        /// Why the result is not there.
        reason: NotStored,
    },
    /// The recorded result does not decode into the type that the function returns.
    #[error(
        "{call} has run, but its recorded result does not decode into the return type ({reason}); it is kept and \
         will not run again: return a type that reads it"
    )]
    Undecodable {
        /// Which call.
        call: CallId,
        /// What does not decode, and where, without the value: ``missing field `id` at line 1 column 12``.
        reason: Arc<str>,
    },
    /// The key, or a value in it, is empty. The body did not run.
    #[error("{operation}: {}; give each call a key of its own", KeyError::Missing)]
    MissingKey {
        /// The scope of the operation.
        operation: Arc<str>,
    },
    /// The key or the scope cannot be used. The body did not run.
    #[error("{operation}: {source}")]
    InvalidKey {
        /// The scope of the operation.
        operation: Arc<str>,
        /// Why the key or the scope cannot be used.
        source: KeyError,
    },
    /// The operation is set up in a way that cannot work. The body did not run.
    #[error("{operation}: {detail}")]
    Configuration {
        /// The scope of the operation.
        operation: Arc<str>,
        /// What is wrong, and what to do.
        detail: Arc<str>,
    },
    /// The body ran, but its result could not be recorded in the caller's transaction. What the body wrote
    /// there is undone, and the transaction can no longer be committed.
    #[error(
        "{call}: its result cannot be recorded in this transaction: {source}; roll back, begin a new transaction and call again"
    )]
    NotRecorded {
        /// Which call.
        call: CallId,
        /// Why the result could not be recorded.
        source: StoreError,
    },
    /// A step of the body has no value. The text shows the step's name, which the program chose.
    #[error("{call}, step {step:?}: {source}")]
    Step {
        /// Which call.
        call: CallId,
        /// The name of the step.
        step: Arc<str>,
        /// Why the step has no value.
        source: StepError,
    },
    /// The store failed before the body ran.
    #[error("{call}: {source}; the body did not run{}", if source.is_transient() { ", so call again" } else { "" })]
    Store {
        /// Which call.
        call: CallId,
        /// The store's error.
        source: StoreError,
    },
}

impl Error {
    pub(crate) fn key(operation: &str, error: KeyError) -> Self {
        let operation = Arc::from(operation);
        match error {
            KeyError::Missing => Self::MissingKey { operation },
            source => Self::InvalidKey { operation, source },
        }
    }

    /// An [`Error::Configuration`], for code that makes calls for others and finds a setting that cannot
    /// work. `detail` says what to change; it must not contain the text of a key.
    #[must_use]
    pub fn configuration(operation: &str, detail: impl Into<Arc<str>>) -> Self {
        Self::Configuration { operation: Arc::from(operation), detail: detail.into() }
    }
}

fn in_flight(retry_after: Duration, reentrant: bool) -> String {
    if reentrant {
        "its own body makes this call and would wait for itself; call the inner function without idem, or under \
         another key"
            .to_owned()
    } else {
        format!("try again in {retry_after:?}, or set `wait` to wait for its result")
    }
}

/// How a claim was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// The lease ran out, and another worker has the key.
    TakenOver,
    /// The key was released: by an operator, or by another worker whose body failed.
    Released,
    /// The record was deleted.
    Forgotten,
    /// Not known, because the engine did not read the record after the loss, or the store did not answer.
    Unknown,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TakenOver => {
                "its lease ran out and another worker has taken over; call again for the recorded result, or set a \
                 longer `lease`"
            }
            Self::Released => "it was released meanwhile; call again to run it",
            Self::Forgotten => "its record was deleted meanwhile; call again to run it",
            Self::Unknown => "the store answers that it is no longer the holder; call again for the result",
        })
    }
}

/// Why the result of a body that ran is not in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotStored {
    /// The result was larger than the operation or the store takes.
    TooLarge,
    /// The result could not be encoded.
    NotEncodable,
}

impl From<Tombstone> for NotStored {
    fn from(tombstone: Tombstone) -> Self {
        match tombstone {
            Tombstone::TooLarge => Self::TooLarge,
            _ => Self::NotEncodable,
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
