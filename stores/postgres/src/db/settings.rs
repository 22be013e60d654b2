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
pub struct Settings {
    /// The servers, or why there are none.
    pub source: Result<Source, StoreError>,
    /// The schema of the tables; unless set, the first of the `search_path`.
    pub schema: Option<String>,
    /// The main table, whose name is the prefix of all.
    pub table: String,
    /// How long one statement may take, with all its repetitions.
    pub operation_timeout: Duration,
    /// How long a statement waits for a lock.
    pub lock_timeout: Duration,
    /// When a connection is replaced.
    pub max_connection_age: Duration,
    /// Whether the layout must exist: if true, it is neither created nor migrated.
    pub must_exist: bool,
}

/// A database in which the layout exists.
pub struct Prepared<N> {
    /// Opens connections to it.
    pub connector: Connector,
    /// The names of its objects.
    pub names: N,
    /// Server, database and table, for `Debug`.
    pub place: String,
}

impl Settings {
    /// The default settings for these servers and this table.
    pub fn new(source: Result<Source, StoreError>, table: &str) -> Self {
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
    ///
    /// # Errors
    ///
    /// What is wrong, if one is out of its range.
    pub fn check(&self) -> Result<(), String> {
        limits::check_timeout("operation_timeout", self.operation_timeout)?;
        limits::check_timeout("lock_timeout", self.lock_timeout)
    }

    /// Connects, and creates the tables if they are missing.
    ///
    /// # Errors
    ///
    /// Those of the settings, the connection and the layout.
    pub async fn prepare<N: Named>(self) -> Result<Prepared<N>, StoreError> {
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
    ///
    /// # Errors
    ///
    /// That of the URL.
    pub fn place(&self) -> Result<String, &StoreError> {
        self.source.as_ref().map(|source| Connector::place_of(&source.servers))
    }
}
