//! Settings that the builders of the store and of the outbox share, and the first connection.

use std::time::Duration;

use super::connector::{Connector, connector};
use super::schema::{self, Named};
use super::source::Source;
use idem_core::StoreError;
use idem_store_kit::sql::{Identifier, limits};

/// How long to wait for a lock unless set.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest name that PostgreSQL takes.
const LONGEST_NAME: usize = 63;

/// The tables and the timeouts.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) source: Result<Source, StoreError>,
    pub(crate) schema: Option<String>,
    pub(crate) table: String,
    pub(crate) operation_timeout: Duration,
    pub(crate) lock_timeout: Duration,
    pub(crate) max_connection_age: Duration,
    /// Whether the layout must exist: if true, it is neither created nor migrated.
    pub(crate) must_exist: bool,
}

/// A database in which the layout exists.
pub(crate) struct Prepared<N> {
    pub(crate) connector: Connector,
    pub(crate) names: N,
    /// Server, database and table, for `Debug`.
    pub(crate) place: String,
}

impl Settings {
    pub(crate) fn new(source: Result<Source, StoreError>, table: &str) -> Self {
        Self {
            source,
            schema: None,
            table: table.to_owned(),
            operation_timeout: limits::OPERATION_TIMEOUT,
            lock_timeout: LOCK_TIMEOUT,
            max_connection_age: limits::MAX_CONNECTION_AGE,
            must_exist: false,
        }
    }

    /// Checks the timeouts.
    pub(crate) fn check(&self) -> Result<(), String> {
        limits::check_timeout("operation_timeout", self.operation_timeout)?;
        limits::check_timeout("lock_timeout", self.lock_timeout)
    }

    /// Connects, and creates the tables if they are missing.
    pub(crate) async fn prepare<N: Named>(self) -> Result<Prepared<N>, StoreError> {
        let schema = self.schema.as_deref().map(|name| Identifier::plain("schema", name, LONGEST_NAME));
        let schema = schema.transpose()?;
        let table = Identifier::table(&self.table)?;
        let connector =
            connector(self.source?, self.operation_timeout, self.lock_timeout, self.max_connection_age);
        let names: N = schema::prepare(&connector, schema.as_ref(), &table, self.must_exist).await?;
        let place = format!("{} table {}", connector.place(), names.table());
        Ok(Prepared { connector, names, place })
    }

    /// Where server and database are, for `Debug`.
    pub(crate) fn place(&self) -> Result<String, &StoreError> {
        self.source.as_ref().map(|source| Connector::place_of(&source.servers))
    }
}
