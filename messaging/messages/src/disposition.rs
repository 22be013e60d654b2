//! The dispositions: how a message is settled.

use std::time::Duration;

/// How a message must be settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disposition {
    /// The message is done: its effect has happened, in this delivery or an earlier one.
    Acknowledge,
    /// The broker must deliver the message again, not sooner than `after` from now.
    #[non_exhaustive]
    Retry {
        /// For example, the remaining time of another worker's lease, or a pause that grows with each
        /// attempt.
        after: Duration,
    },
    /// Another delivery would give the same result, so the message is set aside for a person, in a
    /// dead-letter queue.
    #[non_exhaustive]
    Reject {
        /// Why the message is rejected.
        reason: Reason,
    },
}

impl Disposition {
    /// Delivers the message again, not sooner than `after` from now.
    #[must_use]
    pub const fn retry(after: Duration) -> Self {
        Self::Retry { after }
    }

    /// Sets the message aside.
    #[must_use]
    pub const fn reject(reason: Reason) -> Self {
        Self::Reject { reason }
    }

    /// A stable name, for events and metrics.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Acknowledge => "acknowledge",
            Self::Retry { .. } => "retry",
            Self::Reject { .. } => "reject",
        }
    }
}

/// Why a message is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The body of the message's call failed for good, as the operation's `terminal` or the error itself
    /// says.
    Terminal,
    /// The message's key was used with other arguments.
    Mismatch,
    /// The key of the message's call is in doubt: see [`Error::InDoubt`](idem_runtime::Error::InDoubt).
    InDoubt,
    /// The message has used up the operation's `max_attempts`, the consumer's
    /// [`max_tries`](super::Consumer::max_tries), or the deliveries that the broker allows.
    Exhausted,
    /// The message's handler panicked, as often as the consumer's [`max_tries`](super::Consumer::max_tries)
    /// allows.
    Panicked,
    /// The store's record for the message's key cannot be read.
    CorruptRecord,
    /// The recorded result of the message's call does not decode.
    Undecodable,
    /// A step of the call's body was refused, or a recorded step has no value to return.
    Step,
    /// The message has no key, or a key that cannot be used.
    InvalidKey,
    /// The message's call was refused with [`Error::Configuration`](idem_runtime::Error::Configuration), as
    /// often as the consumer's [`max_tries`](super::Consumer::max_tries) allows.
    Misconfigured,
}

impl Reason {
    /// A stable name, for logs and for a header of the dead letter.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Terminal => "terminal",
            Self::Mismatch => "mismatch",
            Self::InDoubt => "in_doubt",
            Self::Exhausted => "exhausted",
            Self::Panicked => "panicked",
            Self::CorruptRecord => "corrupt_record",
            Self::Undecodable => "undecodable",
            Self::Step => "step",
            Self::InvalidKey => "invalid_key",
            Self::Misconfigured => "configuration",
        }
    }
}
