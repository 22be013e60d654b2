//! Which return types an idempotent function may have, and how the engine sees them.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// A return type that the engine can convert into a `Result`.
pub(crate) trait Return {
    /// The value that is recorded.
    type Value;
    /// The error type, into which idem's own error is converted.
    type Error: From<Error>;
    /// Converts it into a `Result`.
    ///
    /// # Errors
    ///
    /// The error of the body.
    fn into_result(self) -> Result<Self::Value, Self::Error>;
}

impl<T, E: From<Error>> Return for Result<T, E> {
    type Value = T;
    type Error = E;

    fn into_result(self) -> Self {
        self
    }
}

/// A return type whose value can be recorded and replayed.
#[diagnostic::on_unimplemented(
    message = "an idempotent function cannot return `{Self}`",
    label = "this must be a `Result<T, E>` with `T: Serialize + DeserializeOwned` and `E: From<idem::Error>`"
)]
pub trait Recordable {
    /// The value that is recorded.
    type Value: Serialize + DeserializeOwned;
    /// The error type, into which idem's own error is converted.
    type Error: From<Error>;
    /// Converts it into a `Result`.
    ///
    /// # Errors
    ///
    /// The error of the body.
    fn into_result(self) -> Result<Self::Value, Self::Error>;
    /// Makes it from a `Result`.
    fn from_result(result: Result<Self::Value, Self::Error>) -> Self;
}

impl<T, E> Recordable for Result<T, E>
where
    // Not `DeserializeOwned`, because for this bound rustc shows serde's hint about what to derive.
    T: Serialize + for<'de> Deserialize<'de>,
    E: From<Error>,
{
    type Value = T;
    type Error = E;

    fn into_result(self) -> Self {
        self
    }

    fn from_result(result: Self) -> Self {
        result
    }
}

/// A body's result without bounds on its types: idem's own error stays separate from the body's.
pub(crate) struct Unbound<T, E>(pub(crate) Result<T, E>);

/// Why there is no value.
pub(crate) enum Failure<E> {
    Idem(Error),
    Body(E),
}

impl<E> From<Error> for Failure<E> {
    fn from(error: Error) -> Self {
        Self::Idem(error)
    }
}

impl<E: From<Error>> Failure<E> {
    /// Converts it into the body's error type.
    pub(crate) fn into_own(self) -> E {
        match self {
            Self::Idem(error) => error.into(),
            Self::Body(error) => error,
        }
    }
}

impl<T, E> Return for Unbound<T, E> {
    type Value = T;
    type Error = Failure<E>;

    fn into_result(self) -> Result<T, Failure<E>> {
        self.0.map_err(Failure::Body)
    }
}
