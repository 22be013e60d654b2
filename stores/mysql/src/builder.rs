//! Sets up a store: its settings, their checks, and the first connection.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::mysql::MySqlConnectOptions;

use super::MySqlStore;
use super::layout::Names;
use super::setting::Setting;
use super::statements::Statements;
use crate::db::connector::{Connector, Opener, Source, database};
use crate::db::schema;
use crate::db::session::AT_ONCE;
use idem_core::StoreError;
use idem_store_kit::hints::Hints;
use idem_store_kit::own_runtime::apart;
use idem_store_kit::sql::{Identifier, Limits, Settings, SharedStore};

const TABLE: &str = "idem_records";
/// How many bytes of a message are reserved for everything but the hexadecimal digits of a result.
const MESSAGE: usize = 64 << 10;
/// Approximate upper limit for the text of one exchange that carries several operations, in bytes.
const MOST_BYTES: usize = 1 << 20;

/// The settings of a [`MySqlStore`].
#[derive(Clone, Debug)]
#[must_use]
pub struct MySqlStoreBuilder {
    settings: Settings<Source>,
    limits: Limits,
}

impl MySqlStoreBuilder {
    pub(super) fn new(source: Result<Source, StoreError>) -> Self {
        Self { settings: Settings::new(source, TABLE), limits: Limits::default() }
    }

    /// Makes `connect` fail if the table is missing or has an older layout. The store does not create or
    /// migrate the table, and does not purge it by itself. This is for tools that read the table of a program
    /// that uses idem.
    pub const fn must_exist(mut self) -> Self {
        self.settings.must_exist = true;
        self.limits.purge_every = None;
        self
    }

    /// The name of the table, up to 40 letters, digits and underscores; `idem_records` unless set. Stores
    /// with different tables share nothing.
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.settings.table = table.into();
        self
    }

    /// How long an operation may take, with all its retries, from 1 millisecond to 1 hour; 5 seconds unless
    /// set.
    pub const fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.settings.operation_timeout = timeout;
        self
    }

    /// Upper limit of the connections for each tokio runtime that calls the store, from 1 to 64; 4 unless
    /// set. For renewals, steps, releases and retries, the store opens up to this number of further
    /// connections. More connections are seldom faster, because operations that find no free connection share
    /// a transaction.
    pub const fn connections(mut self, most: usize) -> Self {
        self.limits.connections = most;
        self
    }

    /// How old a connection may become before the store replaces it; 30 minutes unless set. The replacement
    /// lets the store notice when a host name points to another server.
    pub const fn max_connection_age(mut self, age: Duration) -> Self {
        self.settings.max_connection_age = age;
        self
    }

    /// Completes the options before each connection is opened, for passwords and tokens that change.
    /// `refresh` gets the options of the URL or pool, and returns the options to connect with. The time limit
    /// for connecting includes this call. With a pool, the program may call
    /// [`set_connect_options`](sqlx::Pool::set_connect_options) instead: each new connection of the store
    /// uses the pool's current options.
    ///
    /// ```
    /// # use idem_mysql::MySqlStore;
    /// # async fn token() -> Result<String, std::io::Error> { Ok(String::new()) }
    /// MySqlStore::builder("mysql://service@db.example/orders")
    ///     .connect_options_with(|options| async { Ok::<_, std::io::Error>(options.password(&token().await?)) });
    /// ```
    pub fn connect_options_with<F, R, E>(mut self, refresh: F) -> Self
    where
        F: Fn(MySqlConnectOptions) -> R + Send + Sync + 'static,
        R: Future<Output = Result<MySqlConnectOptions, E>> + Send + 'static,
        E: fmt::Display,
    {
        self.settings.source = self.settings.source.map(|source| source.refreshed(refresh));
        self
    }

    /// The largest result that is stored, in bytes, up to 512 MiB; 16 MiB unless set. The server sets a
    /// second limit: half of its `max_allowed_packet`, less 32 KiB. The lower of the two limits applies, and
    /// [`max_result_bytes`](idem_core::Store::max_result_bytes) of the store returns it.
    pub const fn max_result_bytes(mut self, bytes: usize) -> Self {
        self.limits.max_result_bytes = bytes;
        self
    }

    /// About how often the store deletes expired records in the background, from 1 millisecond to 1 hour; 5
    /// minutes unless set. With `None`, only calls of [`purge`](idem_core::Store::purge) delete them. Each
    /// purge opens a separate connection and deletes in small batches. Purges of several processes do not
    /// wait for each other. The purges stop when the last handle of the store is dropped.
    pub fn purge_every(mut self, every: impl Into<Option<Duration>>) -> Self {
        self.limits.purge_every = every.into();
        self
    }

    /// Connects, and creates the tables if they are missing.
    ///
    /// # Errors
    ///
    /// [`Configuration`](idem_core::StoreErrorKind::Configuration) if
    ///
    /// - a setting is out of its range, or a name is not an identifier;
    /// - the URL, the user or the database is wrong, or a right is missing;
    /// - the server is older than MySQL 8.0 or MariaDB 10.6, or its `max_allowed_packet` is below 256 KiB;
    /// - the table belongs to another program or to a newer version of idem;
    /// - [`must_exist`](Self::must_exist) is set, and the table is missing or has an older layout.
    ///
    /// [`Unavailable`](idem_core::StoreErrorKind::Unavailable) if the server cannot be reached within the
    /// operation timeout.
    pub async fn connect(self) -> Result<MySqlStore, StoreError> {
        let (settings, limits) = (self.settings, self.limits);
        settings.check().and_then(|()| limits.check()).map_err(StoreError::configuration)?;
        let table = Identifier::table(&settings.table)?;
        let source = settings.source?;
        let names = Names::new(&Identifier::existing(database(&source)?), &table);
        let connector =
            Connector::new(Opener, source, settings.operation_timeout, settings.max_connection_age);
        let place = format!("{} table {}", connector.place(), settings.table);
        let (opening, named) = (connector.clone(), names.clone());
        let preparing =
            async move { schema::prepare(&opening, &named, &named.layouts(), settings.must_exist).await };
        let server = apart(preparing).await?;
        let setting = Setting {
            connector,
            statements: Arc::new(Statements::new(names)),
            at_once: if server.fails_at_once { AT_ONCE } else { "" },
            connections: limits.connections,
            most_bytes: MOST_BYTES.min(server.max_packet / 2),
            stepped: Hints::default(),
            has_transactions: Default::default(),
        };
        let max_result_bytes = limits.max_result_bytes.min(server.max_packet.saturating_sub(MESSAGE) / 2);
        Ok(MySqlStore(SharedStore::new(setting, max_result_bytes, place, limits.purge_every)))
    }
}
