//! Settings that the builders of the store and of the outbox share, and the first connection.

use std::time::Duration;

use super::connector::{Connector, connector};
use super::schema::{self, Named};
use super::source::Source;
use idem_core::StoreError;
use idem_store_kit::limits::check_time;
use idem_store_kit::sql::{self, Identifier};

/// The default of `lock_timeout`.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest name that PostgreSQL takes.
const LONGEST_NAME: usize = 63;

/// The tables and the timeouts.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The settings that all SQL servers share.
    pub common: sql::Settings<Source>,
    /// The schema of the tables; unless set, the first of the `search_path`.
    pub schema: Option<String>,
    /// How long a statement waits for a lock.
    pub lock_timeout: Duration,
}

/// A database in which the layout exists.
pub struct Prepared<N> {
    /// Opens connections to the database.
    pub connector: Connector,
    /// The names of the layout's objects.
    pub names: N,
    /// Server, database and table, for `Debug`.
    pub place: String,
}

impl Settings {
    /// The default settings for these servers and this table.
    pub fn new(source: Result<Source, StoreError>, table: &str) -> Self {
        Self { common: sql::Settings::new(source, table), schema: None, lock_timeout: LOCK_TIMEOUT }
    }

    /// Checks the timeouts.
    ///
    /// # Errors
    ///
    /// A text that says what is wrong, if a timeout is out of its range.
    pub fn check(&self) -> Result<(), String> {
        self.common.check()?;
        check_time("lock_timeout", self.lock_timeout, Duration::from_millis(1))
    }

    /// Connects, and creates the tables if they are missing.
    ///
    /// # Errors
    ///
    /// The errors of the settings, the connection and the layout.
    pub async fn prepare<N: Named>(self) -> Result<Prepared<N>, StoreError> {
        let schema = self.schema.as_deref().map(|name| Identifier::plain("schema", name, LONGEST_NAME));
        let schema = schema.transpose()?;
        let Self { common, lock_timeout, .. } = self;
        let table = Identifier::table(&common.table)?;
        let connector =
            connector(common.source?, common.operation_timeout, lock_timeout, common.max_connection_age);
        let (names, tables) =
            schema::prepare::<N>(&connector, schema.as_ref(), &table, common.must_exist).await?;
        let place = format!("{} table {}", connector.place(), tables.named(""));
        Ok(Prepared { connector, names, place })
    }
}
