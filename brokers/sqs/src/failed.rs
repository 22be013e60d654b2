//! The SDK's errors as ours.

use std::error::Error as StdError;

use aws_sdk_sqs::error::DisplayErrorContext;

use crate::Error;

/// With what is behind the error, which the SDK shows only so.
pub(crate) fn failed<E: StdError>(doing: &'static str) -> impl FnOnce(E) -> Error {
    move |error| Error::new(doing, DisplayErrorContext(error).to_string())
}
