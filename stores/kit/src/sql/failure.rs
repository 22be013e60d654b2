//! Why a connection failed.

use std::fmt::Display;
use std::io::ErrorKind;

use idem_core::StoreError;
use sqlx_core::Error;
use sqlx_core::error::DatabaseError;

use crate::network;

/// Why a server is not usable.
#[derive(Debug)]
pub struct Refusal {
    /// The error for the caller.
    pub error: StoreError,
    /// Whether another server may be usable.
    pub is_of_this_server: bool,
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self { is_of_this_server: error.is_transient(), error }
    }
}

impl Refusal {
    /// For a connection that could not be opened. No operation was sent, so none was applied. `refused`
    /// translates the server's error, and returns `None` if it cannot.
    pub fn of_connect(error: &Error, refused: impl FnOnce(&dyn DatabaseError) -> Option<StoreError>) -> Self {
        match error {
            Error::Database(error) => refused(&**error)
                .unwrap_or_else(|| StoreError::unavailable("the server refused the connection")),
            Error::Configuration(error) => {
                StoreError::configuration(format!("the connection's settings are wrong: {error}"))
            }
            Error::Tls(error) if !network::was_cut(&**error) => return Self::of_encryption(error),
            // The driver's error for a certificate that is not accepted.
            Error::Io(error) if error.kind() == ErrorKind::InvalidData => return Self::of_encryption(error),
            other => StoreError::unavailable(format!("no connection to the server can be made: {other}")),
        }
        .into()
    }

    /// For a connection that could not be encrypted. Another server may be usable, because each server has
    /// its own certificate.
    fn of_encryption(error: &impl Display) -> Self {
        let error = format!("no encrypted connection can be made: {error}");
        Self { error: StoreError::configuration(error), is_of_this_server: true }
    }
}
