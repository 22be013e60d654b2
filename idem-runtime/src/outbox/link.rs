//! A connection that is opened when it is needed, and again when it broke.

use std::sync::Arc;

use sqlx::postgres::{PgArguments, PgConnection, PgRow, Postgres};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Connection as _, Decode, Executor as _, Row as _, Type};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::error::StoreError;
use crate::store::postgres::failure::{self, Failure};
use crate::store::postgres::session::Opening;
use crate::store::retry::retried;

pub(super) type Asked = Query<'static, Postgres, PgArguments>;

/// A statement without its parameters.
pub(super) fn statement(text: &Arc<str>) -> Asked {
    sqlx::query(AssertSqlSafe(text.clone()))
}

/// One connection, of one runtime.
pub(super) struct Link {
    opening: Opening,
    /// Nothing while a statement runs: one that is broken off takes its connection with it.
    connection: Mutex<Option<PgConnection>>,
}

impl Link {
    pub(super) fn new(opening: &Opening) -> Self {
        Self { opening: opening.clone(), connection: Mutex::new(None) }
    }

    /// What comes of a statement, which is put again while the server is away, for the operation timeout in all.
    pub(super) async fn ask(&self, asked: impl Fn() -> Asked) -> Result<Vec<PgRow>, StoreError> {
        retried(self.opening.time(), || async {
            let mut slot = self.connection.lock().await;
            let mut connection = match slot.take() {
                Some(connection) => connection,
                None => self.opening.open().await?,
            };
            match connection.fetch_all(asked()).await {
                Ok(rows) => {
                    *slot = Some(connection);
                    Ok(rows)
                }
                Err(error) => match failure::of_statement(&error) {
                    Failure::Refused(error) => {
                        *slot = Some(connection);
                        Err(error)
                    }
                    Failure::Broken(error) => Err(error),
                },
            }
        })
        .await
    }

    /// Tells the server, so that it need not find out.
    pub(super) async fn close(self) {
        if let Some(connection) = self.connection.into_inner() {
            let _ = timeout(self.opening.time(), PgConnection::close(connection)).await;
        }
    }
}

/// A column of a row.
pub(super) fn column<'r, T>(row: &'r PgRow, index: usize) -> Result<T, StoreError>
where
    T: Decode<'r, Postgres> + Type<Postgres>,
{
    row.try_get(index).map_err(|error| failure::of_statement(&error).error())
}
