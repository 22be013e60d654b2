//! Makes errors of idem without a call. Use them in unit tests of an `impl From<idem::Error>`, of the status
//! of an API's response, or of a rule for retries.
//!
//! Each error has the scope of an operation and invented details. If the error has a key digest, the digest
//! belongs to the key `example`.
//!
//! The operation must be a valid scope: not blank, and at most
//! [`MAX_SCOPE_BYTES`](idem_core::MAX_SCOPE_BYTES) bytes long. Otherwise most of these functions panic.
//!
//! ```
//! # use idem_runtime as idem;
//! # use idem_testing as testing;
//! use std::time::Duration;
//! use idem::{Error, ErrorKind};
//! use testing::errors; // `idem::testing::errors`
//!
//! fn status(error: &Error) -> u16 {
//!     match error.kind() {
//!         ErrorKind::InFlight | ErrorKind::NotDue => 409,
//!         ErrorKind::Mismatch => 422,
//!         _ => 503,
//!     }
//! }
//!
//! assert_eq!(status(&errors::in_flight("payments.charge", Duration::from_secs(3))), 409);
//! assert_eq!(status(&errors::mismatch("payments.charge")), 422);
//! // One of each kind, so that no kind is forgotten.
//! assert!(errors::all("payments.charge").iter().all(|error| status(error) >= 400));
//! ```

use std::time::Duration;

use idem_core::{Key, KeyError, RecordKey, Scope, StoreError};
use idem_runtime::{CallId, Error, Loss, NotStored, StepError};

/// A call of `operation` under the key `example`.
fn call(operation: &str) -> CallId {
    let scope = Scope::new(operation.to_owned()).expect("the operation is a scope");
    let key = Key::new("example").expect("it is a key");
    CallId::from(&RecordKey::new(scope, key))
}

/// [`Error::InFlight`]: a call with the same key is in flight. Its lease ends after `retry_after`.
#[must_use]
pub fn in_flight(operation: &str, retry_after: Duration) -> Error {
    Error::InFlight { call: call(operation), retry_after, reentrant: false }
}

/// [`Error::InFlight`] of a body that calls itself under its own key.
#[must_use]
pub fn reentrant(operation: &str) -> Error {
    Error::InFlight { call: call(operation), retry_after: Duration::from_secs(30), reentrant: true }
}

/// [`Error::NotDue`]: the last attempt failed. The next attempt is due after `retry_after`.
#[must_use]
pub fn not_due(operation: &str, retry_after: Duration) -> Error {
    Error::NotDue { call: call(operation), retry_after }
}

/// [`Error::Mismatch`]: the key was used with other arguments.
#[must_use]
pub fn mismatch(operation: &str) -> Error {
    Error::Mismatch { call: call(operation) }
}

/// [`Error::InDoubt`]: the key is in doubt.
#[must_use]
pub fn in_doubt(operation: &str) -> Error {
    Error::InDoubt { call: call(operation) }
}

/// [`Error::Exhausted`]: all attempts were used without a result.
#[must_use]
pub fn exhausted(operation: &str, attempts: u32) -> Error {
    Error::Exhausted { call: call(operation), attempts }
}

/// [`Error::LeaseLost`]: the claim was lost while the body ran.
#[must_use]
pub fn lease_lost(operation: &str, loss: Loss) -> Error {
    Error::LeaseLost { call: call(operation), loss }
}

/// [`Error::TimedOut`]: the body took longer than `after`.
#[must_use]
pub fn timed_out(operation: &str, after: Duration) -> Error {
    Error::TimedOut { call: call(operation), after }
}

/// [`Error::NoTimeLeft`]: the deadline of `with_deadline` has passed.
#[must_use]
pub fn no_time_left(operation: &str) -> Error {
    Error::NoTimeLeft { call: call(operation) }
}

/// [`Error::ResultNotStored`]: the body has run before, and its result is not in the store.
#[must_use]
pub fn result_not_stored(operation: &str, reason: NotStored) -> Error {
    Error::ResultNotStored { call: call(operation), reason }
}

/// [`Error::Undecodable`]: the recorded result does not decode into the return type, for this reason.
#[must_use]
pub fn undecodable(operation: &str, reason: &str) -> Error {
    Error::Undecodable { call: call(operation), reason: reason.into() }
}

/// [`Error::MissingKey`]: the key, or a value in it, is empty.
#[must_use]
pub fn missing_key(operation: &str) -> Error {
    Error::MissingKey { operation: operation.into() }
}

/// [`Error::InvalidKey`]: the key cannot be used.
#[must_use]
pub fn invalid_key(operation: &str, source: KeyError) -> Error {
    Error::InvalidKey { operation: operation.into(), source }
}

/// [`Error::Configuration`]: the operation is set up in a way that cannot work.
#[must_use]
pub fn configuration(operation: &str, detail: &str) -> Error {
    Error::configuration(operation, detail)
}

/// [`Error::NotRecorded`]: the result could not be recorded in the caller's transaction.
#[must_use]
pub fn not_recorded(operation: &str, source: StoreError) -> Error {
    Error::NotRecorded { call: call(operation), source }
}

/// [`Error::Step`]: the step of this name has no value.
#[must_use]
pub fn step(operation: &str, step: &str, source: StepError) -> Error {
    Error::Step { call: call(operation), step: step.into(), source }
}

/// [`StepError::Undecodable`], for this reason.
#[must_use]
pub fn step_undecodable(reason: &str) -> StepError {
    StepError::Undecodable { reason: reason.into() }
}

/// [`Error::Store`]: the store failed before the body ran.
#[must_use]
pub fn store(operation: &str, source: StoreError) -> Error {
    Error::Store { call: call(operation), source }
}

/// One error of each kind, in the order of [`ErrorKind::ALL`](idem_runtime::ErrorKind::ALL).
#[must_use]
pub fn all(operation: &str) -> Vec<Error> {
    let after = Duration::from_secs(3);
    let lost = || StoreError::unavailable("the connection was refused");
    let steps = [
        StepError::Repeated,
        StepError::Nested,
        StepError::Unprotected,
        StepError::InputChanged,
        step_undecodable("missing field `id` at line 1 column 2"),
        StepError::NotStored(NotStored::TooLarge),
        StepError::Store(lost()),
    ];
    let mut all = vec![
        in_flight(operation, after),
        not_due(operation, after),
        mismatch(operation),
        in_doubt(operation),
        exhausted(operation, 5),
        lease_lost(operation, Loss::TakenOver),
        timed_out(operation, after),
        no_time_left(operation),
        result_not_stored(operation, NotStored::TooLarge),
        undecodable(operation, "missing field `id` at line 1 column 2"),
        missing_key(operation),
        invalid_key(operation, KeyError::TooLong { bytes: 2_000 }),
        configuration(operation, "the ttl must be more than zero and at most 100 years"),
        not_recorded(operation, lost()),
        store(operation, lost()),
    ];
    all.extend(steps.map(|source| step(operation, "reserve", source)));
    all
}
