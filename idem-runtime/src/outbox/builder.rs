//! How an outbox is set up: its settings, what is checked of them, and the first connection.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::Connection as _;
use sqlx::postgres::{PgConnectOptions, PgConnection};

use super::error::OutboxError;
use super::handle::{Inner, Outbox};
use super::layout::{self, Names};
use super::statements::Statements;
use crate::error::StoreError;
use crate::store::postgres::names::Identifier;
use crate::store::postgres::schema;
use crate::store::postgres::session::{Opening, options_of_url, place};
use crate::store::retry::retried;

const TABLE: &str = "idem_outbox";
const OPERATION_TIMEOUT: Duration = Duration::from_secs(5);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(60 * 60);
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_PAYLOAD_BYTES: usize = 1024 * 1024;
const LARGEST_MAX_PAYLOAD_BYTES: usize = 64 * 1024 * 1024;

/// How to connect an [`Outbox`].
#[derive(Clone)]
#[must_use]
pub struct OutboxBuilder {
    options: Result<PgConnectOptions, StoreError>,
    schema: Option<String>,
    table: String,
    operation_timeout: Duration,
    max_payload_bytes: usize,
    notify: bool,
}

impl OutboxBuilder {
    pub(super) fn of_url(url: &str) -> Self {
        Self::new(options_of_url(url))
    }

    pub(super) fn new(options: Result<PgConnectOptions, StoreError>) -> Self {
        Self {
            options,
            schema: None,
            table: TABLE.into(),
            operation_timeout: OPERATION_TIMEOUT,
            max_payload_bytes: MAX_PAYLOAD_BYTES,
            notify: true,
        }
    }

    /// The schema of the tables, made if it is absent; if not set, the first that exists of the
    /// connection's `search_path`. Up to 63 letters, digits and underscores.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = Some(schema.into());
        self
    }

    /// The table of the messages, and the beginning of the names of those beside it; `idem_outbox` if not set. Up to
    /// 40 letters, digits and underscores. Outboxes with different tables have nothing in common.
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// How long a relay's or an operator's statement may take, with all that is asked again, from 1 millisecond to 1
    /// hour; 5 seconds if not set. What is enqueued takes as long as the caller's connection allows.
    pub const fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.operation_timeout = timeout;
        self
    }

    /// The largest payload, in bytes, up to 64 MiB; 1 MiB if not set.
    pub const fn max_payload_bytes(mut self, bytes: usize) -> Self {
        self.max_payload_bytes = bytes;
        self
    }

    /// Whether a commit wakes the relays, by `NOTIFY`; it does if not set.
    ///
    /// The server lets transactions that notify commit only one after the other, in all its databases. Where they are
    /// more than some hundreds a second, turn it off and have the relays look often
    /// ([`poll_interval`](super::Relay::poll_interval)). It prepares none of them for a commit in two phases, either.
    pub const fn notify(mut self, notify: bool) -> Self {
        self.notify = notify;
        self
    }

    /// Connects, and makes the tables if they are absent.
    ///
    /// # Errors
    ///
    /// [`OutboxError::Configuration`] if a setting is out of its range. [`OutboxError::Database`] if a name is no
    /// identifier, the URL, the user or the database is wrong, a right is missing, or the tables were made by a newer
    /// version; and, [transient](OutboxError::is_transient), if the server cannot be reached within the operation timeout.
    pub async fn connect(self) -> Result<Outbox, OutboxError> {
        self.check()?;
        let schema = self.schema.as_deref().map(Identifier::schema).transpose()?;
        let table = Identifier::table(&self.table)?;
        let opening = Opening::new(self.options?, self.operation_timeout, LOCK_TIMEOUT);
        let names = retried(self.operation_timeout, || prepare(&opening, schema.clone(), &table)).await?;
        Ok(Outbox(Arc::new(Inner {
            place: format!("{} table {}", place(opening.options()), names.messages),
            statements: Statements::new(&names, self.notify),
            opening,
            names,
            max_payload_bytes: self.max_payload_bytes,
        })))
    }

    fn check(&self) -> Result<(), OutboxError> {
        let refuse = |detail: String| Err(OutboxError::Configuration(detail));
        if self.operation_timeout < Duration::from_millis(1) || self.operation_timeout > LONGEST_TIMEOUT {
            return refuse(format!(
                "`operation_timeout` is {:?} and must be from 1ms to 1h",
                self.operation_timeout
            ));
        }
        if self.max_payload_bytes == 0 || self.max_payload_bytes > LARGEST_MAX_PAYLOAD_BYTES {
            return refuse(format!(
                "`max_payload_bytes` is {} and must be from 1 to {LARGEST_MAX_PAYLOAD_BYTES}",
                self.max_payload_bytes
            ));
        }
        Ok(())
    }
}

async fn prepare(
    opening: &Opening,
    schema: Option<Identifier>,
    table: &Identifier,
) -> Result<Names, StoreError> {
    let mut connection = opening.open().await?;
    let prepared = async {
        let names = Names::new(&schema::schema_to_use(&mut connection, schema).await?, table);
        schema::prepare(&mut connection, &layout::layout(&names)).await?;
        Ok(names)
    };
    let names = prepared.await;
    // It has done what it was opened for, whether the server hears of it or not.
    let _ = PgConnection::close(connection).await;
    names
}

impl fmt::Debug for OutboxBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboxBuilder")
            .field("place", &self.options.as_ref().map(place))
            .field("schema", &self.schema)
            .field("table", &self.table)
            .field("operation_timeout", &self.operation_timeout)
            .field("max_payload_bytes", &self.max_payload_bytes)
            .field("notify", &self.notify)
            .finish()
    }
}
