//! Which return types an idempotent function may have, and how the engine sees them.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;

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
    /// It as a `Result`.
    ///
    /// # Errors
    ///
    /// The error of the body.
    fn as_result(&self) -> Result<&Self::Value, &Self::Error>;
    /// Makes it from a `Result`.
    fn from_result(result: Result<Self::Value, Self::Error>) -> Self;
}

impl<T: RecordableValue, E: OwnError> Recordable for Result<T, E> {
    type Value = T;
    type Error = E;

    fn as_result(&self) -> Result<&T, &E> {
        self.as_ref()
    }

    fn from_result(result: Self) -> Self {
        result
    }
}

/// A value that can be recorded, with a message for each that cannot.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be recorded",
    label = "the value `{Self}` must be `serde::Serialize` and `serde::Deserialize`",
    note = "derive both for a type of your own: `#[derive(serde::Serialize, serde::Deserialize)]`; for another crate's type, look \
            for its feature `serde`",
    note = "a response, such as `axum::Json`, is not recorded: annotate the function that the handler calls, or use the HTTP layer"
)]
pub trait RecordableValue: Serialize + DeserializeOwned {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned> RecordableValue for T {}

/// A function's own error, into which idem's error is converted, with a message for each that is none.
#[diagnostic::on_unimplemented(
    message = "the error `{Self}` cannot be made from `idem::Error`",
    label = "the error `{Self}` must be `From<idem::Error>`",
    note = "with thiserror, add a variant: `#[error(transparent)] Idem(#[from] idem::Error)`; otherwise write \
            `impl From<idem::Error> for {Self}`"
)]
pub trait OwnError: From<Error> {}

#[diagnostic::do_not_recommend]
impl<E: From<Error>> OwnError for E {}
