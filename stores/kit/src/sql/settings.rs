//! The settings that builders of stores of SQL servers have in common, and their limits.

use std::time::Duration;

use idem_core::StoreError;

use crate::limits::{MAX_RESULT_BYTES, OPERATION_TIMEOUT, check_number, check_time};

const MAX_CONNECTION_AGE: Duration = Duration::from_secs(30 * 60);
const PURGE_EVERY: Duration = Duration::from_secs(5 * 60);
const CONNECTIONS: usize = 4;
const MOST_CONNECTIONS: usize = 64;
/// Servers accept values and messages of up to 1 GiB, and a message is larger than the value in it.
const LARGEST_MAX_RESULT_BYTES: usize = 512 * 1024 * 1024;
const LEAST_TIME: Duration = Duration::from_millis(1);

/// The tables of a store, and how to connect to them. `S` is the store's type for its servers.
#[derive(Clone, Debug)]
pub struct Settings<S> {
    /// The servers, or the error of their URL.
    pub source: Result<S, StoreError>,
    /// The main table, whose name is the prefix of all tables' names.
    pub table: String,
    /// How long an operation may take, with all its repetitions.
    pub operation_timeout: Duration,
    /// The age at which a connection is replaced.
    pub max_connection_age: Duration,
    /// Whether the tables must exist: if true, they are neither created nor migrated.
    pub must_exist: bool,
}

impl<S> Settings<S> {
    /// The default settings for these servers and this table.
    pub fn new(source: Result<S, StoreError>, table: &str) -> Self {
        Self {
            source,
            table: table.to_owned(),
            operation_timeout: OPERATION_TIMEOUT,
            max_connection_age: MAX_CONNECTION_AGE,
            must_exist: false,
        }
    }

    /// Checks the timeout.
    ///
    /// # Errors
    ///
    /// A text that says what is wrong, if the value is out of its range.
    pub fn check(&self) -> Result<(), String> {
        check_time("operation_timeout", self.operation_timeout, LEAST_TIME)
    }
}

/// How many resources a store uses on its server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest number of connections in each runtime.
    pub connections: usize,
    /// The largest result, in bytes.
    pub max_result_bytes: usize,
    /// How often the store purges; `None` if it does not purge.
    pub purge_every: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: CONNECTIONS, max_result_bytes: MAX_RESULT_BYTES, purge_every: Some(PURGE_EVERY) }
    }
}

impl Limits {
    /// Checks these settings.
    ///
    /// # Errors
    ///
    /// A text that says what is wrong, if a setting is out of its range.
    pub fn check(&self) -> Result<(), String> {
        check_number("connections", self.connections, MOST_CONNECTIONS)?;
        check_number("max_result_bytes", self.max_result_bytes, LARGEST_MAX_RESULT_BYTES)?;
        self.purge_every.map_or(Ok(()), |every| check_time("purge_every", every, LEAST_TIME))
    }
}
