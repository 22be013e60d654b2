//! Sets up an outbox: its settings, their checks, and the first connection.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;

use super::error::OutboxError;
use super::handle::{Inner, Outbox};
use super::layout::Names;
use idem_core::StoreError;
use idem_postgres::db::settings::{Prepared, Settings};
use idem_postgres::db::source::Source;

const TABLE: &str = "idem_outbox";

impl Outbox {
    /// Connects to the database of this URL, such as `postgres://user:password@host:5432/database`, with
    /// the default settings of a [`builder`](Self::builder).
    ///
    /// # Errors
    ///
    /// As [`OutboxBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Self, OutboxError> {
        Self::builder(url).connect().await
    }

    /// Connects to the database of this pool. The outbox opens its own connections, and uses none of the
    /// pool's.
    ///
    /// # Errors
    ///
    /// As [`OutboxBuilder::connect`].
    pub async fn from_pool(pool: &PgPool) -> Result<Self, OutboxError> {
        Self::builder_from_pool(pool).connect().await
    }

    /// Sets up how to connect to the database of this URL. The URL's parameters, such as `sslmode`, are those
    /// of [`sqlx::postgres::PgConnectOptions`]. The URL may name several servers, as for
    /// [`PostgresStore::builder`](idem_postgres::PostgresStore::builder).
    pub fn builder(url: &str) -> OutboxBuilder {
        OutboxBuilder::new(Source::of_url(url))
    }

    /// Sets up how to connect to the database of this pool.
    pub fn builder_from_pool(pool: &PgPool) -> OutboxBuilder {
        OutboxBuilder::new(Ok(Source::of_pool(pool)))
    }
}

/// The settings of an [`Outbox`].
#[derive(Clone, Debug)]
#[must_use]
pub struct OutboxBuilder {
    settings: Settings,
    notify: bool,
}

impl OutboxBuilder {
    fn new(source: Result<Source, StoreError>) -> Self {
        Self { settings: Settings::new(source, TABLE), notify: true }
    }

    /// With this setting, [`connect`](Self::connect) creates and migrates nothing. It fails if the tables are
    /// missing or have an older layout. Use this for tools that read the outbox of another program.
    pub const fn must_exist(mut self) -> Self {
        self.settings.common.must_exist = true;
        self
    }

    /// The schema of the tables: up to 63 letters, digits and underscores, not beginning with a digit. The
    /// outbox creates the schema if it is missing. Unless set, the tables are in the first existing schema of
    /// the connection's `search_path`.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.settings.schema = Some(schema.into());
        self
    }

    /// The name of the table of messages: up to 40 letters, digits and underscores, not beginning with a
    /// digit; `idem_outbox` unless set. The names of the other tables begin with this name. Outboxes with
    /// different tables share nothing.
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.settings.common.table = table.into();
        self
    }

    /// How long a relay's or an operator's statement may take, with all its retries, from 1 millisecond to 1
    /// hour; 5 seconds unless set. For `enqueue`, the limits of the caller's connection apply.
    pub const fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.settings.common.operation_timeout = timeout;
        self
    }

    /// Calls `refresh` each time before the outbox opens a connection. `refresh` completes the connection
    /// options, for example with a password that changes: see
    /// [`PostgresStoreBuilder::connect_options_with`](idem_postgres::PostgresStoreBuilder::connect_options_with).
    pub fn connect_options_with<F, R, E>(mut self, refresh: F) -> Self
    where
        F: Fn(PgConnectOptions) -> R + Send + Sync + 'static,
        R: Future<Output = Result<PgConnectOptions, E>> + Send + 'static,
        E: fmt::Display,
    {
        self.settings.common.source = self.settings.common.source.map(|source| source.refreshed(refresh));
        self
    }

    /// Whether the commit of a transaction that enqueues wakes the relays, by `NOTIFY`; true unless set.
    ///
    /// A server commits its transactions with a `NOTIFY` one after the other, even those of different
    /// databases. PostgreSQL does not support `NOTIFY` in two-phase commits. If you enqueue in more than a
    /// few hundred transactions a second, or in two-phase commits, set this to false and let the relays poll
    /// often ([`poll_interval`](super::Relay::poll_interval)).
    pub const fn notify(mut self, notify: bool) -> Self {
        self.notify = notify;
        self
    }

    /// Connects, and creates the tables if they are missing.
    ///
    /// # Errors
    ///
    /// [`OutboxError::Configuration`] if a setting is out of its range. [`OutboxError::Database`] if a name
    /// is not an identifier, if the URL, the user or the database is wrong, if a right is missing, or if a
    /// newer version of idem made the tables. If the server cannot be reached within the operation timeout,
    /// this error is [transient](OutboxError::is_transient).
    pub async fn connect(self) -> Result<Outbox, OutboxError> {
        self.settings.check().map_err(OutboxError::Configuration)?;
        let Prepared { connector, names, place } = self.settings.prepare::<Names>().await?;
        let enqueue = names.enqueue(self.notify);
        Ok(Outbox(Arc::new(Inner { connector, names, enqueue, place })))
    }
}
