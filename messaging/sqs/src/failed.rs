//! Conversion of the SDK's errors into ours.

use std::error::Error as StdError;

use aws_sdk_sqs::error::DisplayErrorContext;

use crate::Error;

/// Converts an error of the SDK. The text includes the error's cause, which the SDK's own `Display` leaves
/// out.
pub(crate) fn failed<E: StdError>(doing: &'static str) -> impl FnOnce(E) -> Error {
    move |error| Error::new(doing, DisplayErrorContext(error).to_string())
}
