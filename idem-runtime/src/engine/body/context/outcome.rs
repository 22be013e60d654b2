//! How a call got its result.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::NotStored;
use idem_core::protocol::{Replay, Timestamp};

/// How an idempotent call got its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Its body ran.
    #[non_exhaustive]
    Executed {
        /// Which attempt it was; from 1.
        attempt: u32,
        /// Whether the previous run began and did not end: see [`Context::recovered`](crate::Context::recovered).
        recovered: bool,
        /// Why a duplicate cannot get the result and gets [`Error::ResultNotStored`](crate::Error) instead. `None` if a
        /// duplicate can get it, and if the body failed.
        not_stored: Option<NotStored>,
    },
    /// It got a recorded result; the body did not run in this call.
    #[non_exhaustive]
    Replayed {
        /// The attempt that made the result.
        attempt: u32,
        /// When it was recorded, by the store's clock.
        completed_at: SystemTime,
        /// Until when it is kept, by the store's clock; `None` for ever.
        expires_at: Option<SystemTime>,
    },
    /// Its body ran or `recover` found a value, and `record_if` refused to keep it: the key is free, and the next call runs the
    /// body, or asks `recover` again.
    #[non_exhaustive]
    NotKept {
        /// Which attempt it was; from 1.
        attempt: u32,
    },
    /// Its body ran and succeeded, but its result could not be recorded: the store failed for
    /// longer than the lease, or the record was deleted. Another caller may run the body again.
    #[non_exhaustive]
    Unrecorded {
        /// Which attempt it was; from 1.
        attempt: u32,
    },
    /// Its body ran without protection: the store was down and the operation fails open, or the call
    /// had no key and `missing_key = "run"`.
    Unprotected,
}

impl Outcome {
    /// Whether the result was recorded by another call.
    #[must_use]
    pub const fn is_replayed(&self) -> bool {
        matches!(self, Self::Replayed { .. })
    }

    /// The attempt that made the value; `None` if the body ran without a claim.
    #[must_use]
    pub const fn attempt(&self) -> Option<u32> {
        match self {
            Self::Executed { attempt, .. }
            | Self::Replayed { attempt, .. }
            | Self::NotKept { attempt }
            | Self::Unrecorded { attempt } => Some(*attempt),
            Self::Unprotected => None,
        }
    }

    pub(crate) fn replayed(replay: &Replay) -> Self {
        let date = |at: Timestamp| UNIX_EPOCH.checked_add(Duration::from_micros(at.as_micros()));
        Self::Replayed {
            attempt: replay.attempt,
            completed_at: date(replay.completed_at).unwrap_or(UNIX_EPOCH),
            expires_at: replay.expires_at.and_then(date),
        }
    }
}
