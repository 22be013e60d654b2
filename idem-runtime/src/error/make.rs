//! Makes errors without a call, for `idem_testing::errors`. Not a public interface.
//!
//! The variants of [`Error`] are `#[non_exhaustive]`, so only this crate can make one.

use std::sync::Arc;
use std::time::Duration;

use super::{CallId, Error, Loss, NotStored, StepError, StoreError};
use idem_core::{KeyDigest, KeyError};

/// A call of `operation` under the key with this digest.
#[must_use]
pub fn call(operation: &str, key: KeyDigest) -> CallId {
    CallId { operation: Arc::from(operation), key: Some(key) }
}

macro_rules! errors {
    ($($name:ident($($field:ident: $ty:ty),*) = $variant:ident,)*) => {$(
        #[doc = concat!("An [`Error::", stringify!($variant), "`].")]
        #[must_use]
        pub const fn $name(call: CallId $(, $field: $ty)*) -> Error {
            Error::$variant { call $(, $field)* }
        }
    )*};
}

errors! {
    in_flight(retry_after: Duration, reentrant: bool) = InFlight,
    not_due(retry_after: Duration) = NotDue,
    mismatch() = Mismatch,
    in_doubt() = InDoubt,
    exhausted(attempts: u32) = Exhausted,
    lease_lost(loss: Loss) = LeaseLost,
    timed_out(after: Duration) = TimedOut,
    no_time_left() = NoTimeLeft,
    result_not_stored(reason: NotStored) = ResultNotStored,
    undecodable(reason: Arc<str>) = Undecodable,
    not_recorded(source: StoreError) = NotRecorded,
    step(step: Arc<str>, source: StepError) = Step,
    store(source: StoreError) = Store,
}

/// An [`Error::MissingKey`] or [`Error::InvalidKey`].
#[must_use]
pub fn key(operation: &str, error: KeyError) -> Error {
    Error::key(operation, error)
}

/// A [`StepError::Undecodable`].
#[must_use]
pub fn step_undecodable(reason: &str) -> StepError {
    StepError::Undecodable { reason: reason.into() }
}
