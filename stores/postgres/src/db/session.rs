//! One connection to the server, and the statements on it.

use std::sync::Arc;
use std::time::Duration;

use idem_core::StoreError;
use idem_store_kit::sql::{self, Host, Use};
use sqlx::postgres::{PgArguments, PgConnection, PgRow, Postgres};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Connection as _, Decode, Executor as _, Row as _, Type};
use tokio::time::timeout;

use super::failure::{self, Failure};

/// A statement and its parameters.
pub type Statement = Query<'static, Postgres, PgArguments>;

/// A statement without its parameters.
pub fn statement(text: &Arc<str>) -> Statement {
    sqlx::query(AssertSqlSafe(text.clone()))
}

/// A column of a row.
///
/// # Errors
///
/// The table is not in the form that this version makes.
pub fn column<'r, T>(row: &'r PgRow, index: usize) -> Result<T, StoreError>
where
    T: Decode<'r, Postgres> + Type<Postgres>,
{
    row.try_get(index).map_err(|error| failure::of_statement(&error).error())
}

/// An open connection. It belongs to the runtime that opened it.
pub struct Session {
    connection: PgConnection,
    usage: Use,
    /// The session's name on the server. `None` behind a pooler, because the pooler owns the session and
    /// limits the number of its sessions.
    name: Option<String>,
    /// The statements that begin each transaction, if a pooler shares the server's sessions between its
    /// clients.
    shared: Option<Arc<str>>,
}

impl Session {
    pub(super) fn new(
        connection: PgConnection,
        shared: Option<Arc<str>>,
        name: Option<String>,
        host: Host,
    ) -> Self {
        Self { connection, usage: Use::new(host), name, shared }
    }

    /// Runs one statement in a transaction of its own.
    ///
    /// # Errors
    ///
    /// The errors of the server and of the connection.
    pub async fn fetch_all(&mut self, statement: Statement) -> Result<Vec<PgRow>, Failure> {
        let was_usable = self.usage.begin();
        let answer = match self.shared.clone() {
            None => self.connection.fetch_all(statement).await,
            Some(begin) => self.fetch_shared(&begin, statement).await,
        };
        let answer = answer.map_err(|error| failure::of_statement(&error));
        if matches!(answer, Err(Failure::ReadOnly(_))) {
            self.leave();
        }
        self.usage.end(was_usable, !matches!(answer, Err(Failure::Broken(_) | Failure::ReadOnly(_))));
        answer
    }

    /// As [`fetch_all`](Self::fetch_all), but leaves nothing in the session: the settings end with the
    /// transaction, and the statement has no name.
    async fn fetch_shared(&mut self, begin: &Arc<str>, statement: Statement) -> sqlx::Result<Vec<PgRow>> {
        self.connection.execute(AssertSqlSafe(begin.clone())).await?;
        let answer = self.connection.fetch_all(statement.persistent(false)).await;
        let end = if answer.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = self.connection.execute(end).await;
        let rows = answer?;
        ended.map(|_| rows)
    }

    /// The session's name on the server; `None` behind a pooler.
    pub const fn name(&self) -> Option<&String> {
        self.name.as_ref()
    }

    /// Makes the next connections try another server first, if the URL has several.
    pub(super) fn leave(&self) {
        self.usage.host().leave();
    }

    /// The connection itself, for migrations.
    pub const fn connection(&mut self) -> &mut PgConnection {
        &mut self.connection
    }
}

impl sql::Session for Session {
    fn usage(&self) -> &Use {
        &self.usage
    }

    async fn close(self, time: Duration) {
        let _ = timeout(time, PgConnection::close(self.connection)).await;
    }
}
