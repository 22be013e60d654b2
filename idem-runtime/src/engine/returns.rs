//! Which return types an idempotent function may have.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;

/// A return type whose value can be kept and replayed.
#[diagnostic::on_unimplemented(
    message = "an idempotent function cannot return `{Self}`",
    label = "this must be a `Result<T, E>` with `T: Serialize + DeserializeOwned` and `E: From<idem::Error>`"
)]
pub trait Return {
    /// The value that is recorded.
    type Value: Serialize + DeserializeOwned;
    /// The error that idem's own error becomes.
    type Error: From<Error>;
    /// As a plain `Result`.
    ///
    /// # Errors
    ///
    /// The body's own.
    fn into_result(self) -> Result<Self::Value, Self::Error>;
    /// From a plain `Result`.
    fn from_result(result: Result<Self::Value, Self::Error>) -> Self;
}

impl<T, E> Return for Result<T, E>
where
    T: Serialize + DeserializeOwned,
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
