//! Sets up a store: its settings, their checks, and the first connection.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;

use super::PostgresStore;
use super::layout::Names;
use super::server::Setting;
use super::statements::Statements;
use crate::db::settings::{Prepared, Settings};
use crate::db::source::Source;
use idem_core::StoreError;
use idem_store_kit::own_runtime::apart;
use idem_store_kit::sql::{Limits, SharedStore};

const TABLE: &str = "idem_records";

/// The settings of a [`PostgresStore`].
#[derive(Clone, Debug)]
#[must_use]
pub struct PostgresStoreBuilder {
    settings: Settings,
    limits: Limits,
}

impl PostgresStoreBuilder {
    /// Makes `connect` fail if the table is missing or has an older layout. The store does not create or
    /// migrate the table, and does not purge it by itself. This is for tools that read the table of a program
    /// that uses idem.
    pub const fn must_exist(mut self) -> Self {
        self.settings.common.must_exist = true;
        self.limits.purge_every = None;
        self
    }

    pub(super) fn new(source: Result<Source, StoreError>) -> Self {
        Self { settings: Settings::new(source, TABLE), limits: Limits::default() }
    }

    /// The schema of the table, up to 63 letters, digits and underscores. The store creates the schema if it
    /// is missing. Unless set, the store uses the first existing schema of the connection's `search_path`.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.settings.schema = Some(schema.into());
        self
    }

    /// The name of the table, up to 40 letters, digits and underscores; `idem_records` unless set. Stores
    /// with different tables share nothing.
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.settings.common.table = table.into();
        self
    }

    /// How long an operation may take, with all its retries, from 1 millisecond to 1 hour; 5 seconds unless
    /// set. The timeout also limits each statement.
    pub const fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.settings.common.operation_timeout = timeout;
        self
    }

    /// How long a statement waits for a lock that another transaction holds, from 1 millisecond to 1 hour; 1
    /// second unless set.
    pub const fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.settings.lock_timeout = timeout;
        self
    }

    /// Upper limit of the connections for each tokio runtime that calls the store, from 1 to 64; 4 unless
    /// set. For renewals, releases and retries, the store opens up to this number of further connections.
    /// More connections are seldom faster, because operations that find no free connection share a batch.
    pub const fn connections(mut self, most: usize) -> Self {
        self.limits.connections = most;
        self
    }

    /// How old a connection may become before the store replaces it; 30 minutes unless set. The replacement
    /// lets the store notice when a host name points to another server.
    pub const fn max_connection_age(mut self, age: Duration) -> Self {
        self.settings.common.max_connection_age = age;
        self
    }

    /// Completes the options before each connection is opened, for passwords and tokens that change.
    /// `refresh` gets the options of the URL or pool, and returns the options to connect with. The time limit
    /// for connecting includes this call. If the URL names several servers, the store calls `refresh` for
    /// each server that it tries, with that server's options. With a pool, `refresh` is not needed if the
    /// program calls [`set_connect_options`](sqlx::Pool::set_connect_options). The store always connects with
    /// the options that the pool has at that time.
    ///
    /// ```
    /// # use idem_postgres::PostgresStore;
    /// # async fn token() -> Result<String, std::io::Error> { Ok(String::new()) }
    /// PostgresStore::builder("postgres://service@db.example/orders")
    ///     .connect_options_with(|options| async { Ok::<_, std::io::Error>(options.password(&token().await?)) });
    /// ```
    pub fn connect_options_with<F, R, E>(mut self, refresh: F) -> Self
    where
        F: Fn(PgConnectOptions) -> R + Send + Sync + 'static,
        R: Future<Output = Result<PgConnectOptions, E>> + Send + 'static,
        E: fmt::Display,
    {
        self.settings.common.source = self.settings.common.source.map(|source| source.refreshed(refresh));
        self
    }

    /// The largest result that is stored, in bytes, up to 512 MiB; 16 MiB unless set.
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

    /// Connects, and creates the table if it is missing.
    ///
    /// # Errors
    ///
    /// - [`Configuration`](idem_core::StoreErrorKind::Configuration): a setting is out of its range, a name
    ///   is not an identifier, the URL, the user or the database is wrong, a right is missing, or the table
    ///   belongs to another program or to a newer version of idem. With [`must_exist`](Self::must_exist),
    ///   also: the table is missing or has an older layout.
    /// - [`Unavailable`](idem_core::StoreErrorKind::Unavailable): the store cannot reach the server within
    ///   the operation timeout.
    pub async fn connect(self) -> Result<PostgresStore, StoreError> {
        let Self { settings, limits } = self;
        settings.check().and_then(|()| limits.check()).map_err(StoreError::configuration)?;
        let Prepared { connector, names, place } =
            apart(async move { settings.prepare::<Names>().await }).await?;
        let statements = Arc::new(Statements::new(&names));
        let setting = Setting { connector, statements, connections: limits.connections };
        Ok(PostgresStore(SharedStore::new(setting, limits.max_result_bytes, place, limits.purge_every)))
    }
}
