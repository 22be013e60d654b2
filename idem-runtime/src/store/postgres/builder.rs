//! How a store is set up: its settings, what is checked of them, and the first connection.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::Connection as _;
use sqlx::postgres::{PgConnectOptions, PgConnection};

use super::names::{Identifier, Names};
use super::queue::Queues;
use super::session::{self, Opening, place};
use super::statements::Statements;
use super::{Inner, PostgresStore, layout, schema, worker};
use crate::error::StoreError;
use crate::store::Waiters;
use crate::store::hints::Hints;
use crate::store::own_runtime::apart;
use crate::store::retry::retried;

const TABLE: &str = "idem_records";
/// How long one operation may take, unless it is said otherwise.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(5);
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest that can be said of both.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// How many connections there are at the most, unless it is said otherwise.
const CONNECTIONS: usize = 4;
const MOST_CONNECTIONS: usize = 64;
/// The largest result, unless it is said otherwise.
const MAX_RESULT_BYTES: usize = 16 * 1024 * 1024;
/// The largest that can be said: PostgreSQL takes values up to 1 GB, and a message is more than its value.
const LARGEST_MAX_RESULT_BYTES: usize = 512 * 1024 * 1024;

/// How to connect a [`PostgresStore`].
#[derive(Clone)]
#[must_use]
pub struct PostgresStoreBuilder {
    options: Result<PgConnectOptions, StoreError>,
    schema: Option<String>,
    table: String,
    operation_timeout: Duration,
    lock_timeout: Duration,
    connections: usize,
    max_result_bytes: usize,
    must_exist: bool,
}

impl PostgresStoreBuilder {
    /// Uses what is there: nothing is made or migrated, and what is absent or of an older layout is refused.
    /// For tools that look at a table which another program keeps.
    pub const fn must_exist(mut self) -> Self {
        self.must_exist = true;
        self
    }

    /// For the database of this URL.
    pub(super) fn of_url(url: &str) -> Self {
        Self::new(session::options_of_url(url))
    }

    pub(super) fn new(options: Result<PgConnectOptions, StoreError>) -> Self {
        Self {
            options,
            schema: None,
            table: TABLE.into(),
            operation_timeout: OPERATION_TIMEOUT,
            lock_timeout: LOCK_TIMEOUT,
            connections: CONNECTIONS,
            max_result_bytes: MAX_RESULT_BYTES,
            must_exist: false,
        }
    }

    /// The schema of the table, made if it is absent; if not set, the first that exists of the
    /// connection's `search_path`. Up to 63 letters, digits and underscores.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = Some(schema.into());
        self
    }

    /// The table; `idem_records` if not set. Up to 40 letters, digits and underscores. Stores with
    /// different tables have nothing in common.
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// How long an operation may take, with all that is asked again, from 1 millisecond to 1 hour; 5
    /// seconds if not set. It is also the longest that a statement may take.
    pub const fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.operation_timeout = timeout;
        self
    }

    /// How long a lock held by another transaction is waited for, from 1 millisecond to 1 hour; 1 second
    /// if not set.
    pub const fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = timeout;
        self
    }

    /// How many connections the store opens at the most, from 1 to 64; 4 if not set. More are seldom
    /// faster: operations that find none free travel together.
    pub const fn connections(mut self, most: usize) -> Self {
        self.connections = most;
        self
    }

    /// The largest result that is stored, in bytes, up to 512 MiB; 16 MiB if not set.
    pub const fn max_result_bytes(mut self, bytes: usize) -> Self {
        self.max_result_bytes = bytes;
        self
    }

    /// Connects, and makes the table if it is absent.
    ///
    /// # Errors
    ///
    /// [`Configuration`](crate::StoreErrorKind::Configuration) if a setting is out of its range or a name
    /// no identifier, the URL, the user or the database is wrong, a right is missing, or the table was
    /// made by a newer version. [`Unavailable`](crate::StoreErrorKind::Unavailable) if the server cannot
    /// be reached within the operation timeout.
    pub async fn connect(self) -> Result<PostgresStore, StoreError> {
        self.check()?;
        let schema = self.schema.as_deref().map(Identifier::schema).transpose()?;
        let table = Identifier::table(&self.table)?;
        let opening = Opening::new(self.options?, self.operation_timeout, self.lock_timeout);
        let place = place(opening.options());
        let (first, time, must_exist) = (opening.clone(), self.operation_timeout, self.must_exist);
        let names =
            apart(async move { retried(time, || prepare(&first, schema.clone(), &table, must_exist)).await })
                .await?;
        let place = format!("{place} table {}", names.records);
        let statements = Arc::new(Statements::new(&names));
        let setting = worker::Setting { opening, statements, connections: self.connections };
        Ok(PostgresStore(Arc::new(Inner {
            queues: Arc::new(Queues::new(setting)),
            walking: Arc::default(),
            place,
            max_result_bytes: self.max_result_bytes,
            hints: Hints::new(),
            waiters: Waiters::default(),
        })))
    }

    fn check(&self) -> Result<(), StoreError> {
        let refuse = |detail: String| Err(StoreError::configuration(detail));
        for (name, timeout) in
            [("operation_timeout", self.operation_timeout), ("lock_timeout", self.lock_timeout)]
        {
            if timeout < Duration::from_millis(1) || timeout > LONGEST_TIMEOUT {
                return refuse(format!("`{name}` is {timeout:?} and must be from 1ms to 1h"));
            }
        }
        if self.connections == 0 || self.connections > MOST_CONNECTIONS {
            return refuse(format!(
                "`connections` is {} and must be from 1 to {MOST_CONNECTIONS}",
                self.connections
            ));
        }
        if self.max_result_bytes == 0 || self.max_result_bytes > LARGEST_MAX_RESULT_BYTES {
            return refuse(format!(
                "`max_result_bytes` is {} and must be from 1 to {LARGEST_MAX_RESULT_BYTES}",
                self.max_result_bytes
            ));
        }
        Ok(())
    }
}

impl fmt::Debug for PostgresStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStoreBuilder")
            .field("place", &self.options.as_ref().map(place))
            .field("schema", &self.schema)
            .field("table", &self.table)
            .field("operation_timeout", &self.operation_timeout)
            .field("lock_timeout", &self.lock_timeout)
            .field("connections", &self.connections)
            .field("max_result_bytes", &self.max_result_bytes)
            .finish()
    }
}

async fn prepare(
    opening: &Opening,
    schema: Option<Identifier>,
    table: &Identifier,
    must_exist: bool,
) -> Result<Names, StoreError> {
    let mut connection = opening.open().await?;
    let prepared = async {
        let names = Names::new(&schema::schema_to_use(&mut connection, schema).await?, table);
        let layout = layout::layout(&names);
        match must_exist {
            false => schema::prepare(&mut connection, &layout).await?,
            true => schema::find(&mut connection, &layout).await?,
        }
        Ok(names)
    };
    let names = prepared.await;
    // It has done what it was opened for, whether the server hears of it or not.
    let _ = PgConnection::close(connection).await;
    names
}
