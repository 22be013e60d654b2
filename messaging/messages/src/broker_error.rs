//! The error of a broker's crate when the broker's client fails.

use std::error::Error;
use std::fmt;

/// A failure of a broker's client. It says which operation failed, and has the client's own error as its
/// source.
///
/// The [`Display`](fmt::Display) text contains the client's text, too, because an event shows only one text.
#[derive(Debug)]
pub struct BrokerError {
    doing: &'static str,
    source: Box<dyn Error + Send + Sync>,
}

impl BrokerError {
    /// `doing` says what failed, such as `"publish the dead letter"`.
    #[must_use]
    pub fn new(doing: &'static str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { doing, source: source.into() }
    }

    /// [`new`](Self::new) as a closure for `map_err`.
    pub fn at<E: Into<Box<dyn Error + Send + Sync>>>(doing: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::new(doing, source)
    }
}

impl fmt::Display for BrokerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.doing, self.source)
    }
}

impl Error for BrokerError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
