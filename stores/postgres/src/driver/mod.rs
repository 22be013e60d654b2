//! The drivers in whose transactions the store and the outbox write. A further driver needs the
//! implementation of one trait, about a page of code.
//!
//! `transaction = tx` and `Outbox::enqueue` of `idem-outbox` take a `&mut` of any type that implements
//! [`DriverTransaction`]. They also take types that dereference mutably to such a type, as an object of a
//! pool or your own wrapper:
//!
//! | driver | feature | `tx` is a `&mut` of |
//! |---|---|---|
//! | sqlx 0.9 | always | `Transaction<'_, Postgres>`, `PgConnection` |
//! | tokio-postgres 0.7, deadpool-postgres | `tokio-postgres` | `Transaction<'_>` |
//! | diesel-async 0.9 | `diesel-async` | `AsyncPgConnection`, within `transaction(..)` |
//! | SeaORM 2 | `sea-orm` | `DatabaseTransaction`, `&DatabaseTransaction` |
//!
//! # Another driver
//!
//! Implement [`DriverTransaction`] for the driver's transaction: `execute` and `query` send statements,
//! [`SavepointName`] makes names for savepoints. [`refused`] and [`lost`] translate the driver's errors.

#[cfg(feature = "diesel-async")]
mod diesel_async;
#[cfg(feature = "sea-orm")]
mod sea_orm;
mod sqlx;
#[cfg(feature = "tokio-postgres")]
mod tokio_postgres;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use idem_core::StoreError;

use crate::db::failure;

/// Ends the session. The server refuses this statement in an aborted transaction.
pub(crate) const END_SESSION: &str = "SELECT pg_terminate_backend(pg_backend_pid())";

/// The open transaction of a driver, in which the store records and the outbox enqueues.
///
/// The caller may drop the future of each of these methods at any await. The driver must stay usable
/// afterwards: it must run its next statement after all statements that it has already sent.
#[diagnostic::on_unimplemented(
    message = "`{Self}` carries no transaction that `PostgresStore` knows",
    label = "expected a transaction of sqlx, tokio-postgres, diesel-async or SeaORM",
    note = "all but sqlx have a feature of that name: `tokio-postgres`, `diesel-async`, `sea-orm`"
)]
pub trait DriverTransaction: Send {
    /// A row.
    type Row: Row + Send;

    /// A savepoint that was set.
    type Savepoint: Send;

    /// Whether a transaction is open, as far as the driver knows. A type that is always an open transaction
    /// returns `true`.
    fn is_open(&mut self) -> bool;

    /// Runs one statement and returns all its rows, with columns in PostgreSQL's binary format.
    ///
    /// # Errors
    ///
    /// The errors of [`refused`] and [`lost`].
    fn query(&mut self, query: Query<'_>) -> impl Future<Output = Result<Vec<Self::Row>, StoreError>> + Send;

    /// Runs a statement without parameters, and ignores its rows.
    ///
    /// # Errors
    ///
    /// As [`query`](Self::query).
    fn execute(&mut self, statement: &str) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Sets a savepoint.
    ///
    /// # Errors
    ///
    /// As [`query`](Self::query).
    fn set_savepoint(&mut self) -> impl Future<Output = Result<Self::Savepoint, StoreError>> + Send;

    /// Rolls back to the savepoint. If this future is dropped, the store calls
    /// [`roll_back_first`](Self::roll_back_first).
    ///
    /// # Errors
    ///
    /// As [`query`](Self::query).
    fn roll_back_to(
        &mut self,
        savepoint: &mut Self::Savepoint,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// As [`roll_back_to`](Self::roll_back_to), but returns without waiting for the server. The rollback must
    /// run before the next statement of this connection.
    fn roll_back_first(&mut self, savepoint: &mut Self::Savepoint);

    /// Removes the savepoint, and keeps the writes since then.
    ///
    /// # Errors
    ///
    /// As [`query`](Self::query).
    fn release(
        &mut self,
        savepoint: &mut Self::Savepoint,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// A row in PostgreSQL's binary format.
pub trait Row {
    /// The bytes of a column, counted from 0; `None` if the column is null.
    fn column(&self, index: usize) -> Option<&[u8]>;
}

/// One statement with its parameters.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Query<'a> {
    /// The statement, with `$1` for the first parameter.
    pub text: &'a str,
    /// The parameters of the statement.
    pub parameters: &'a [Parameter<'a>],
    /// Whether another client may get the session after the transaction. If so, the statement must have no
    /// name on the server.
    pub is_pooled: bool,
}

impl<'a> Query<'a> {
    /// A statement with its parameters. `is_pooled` says whether a pooler may share the session; see
    /// [`Opener::is_shared`](crate::db::connector::Opener::is_shared).
    #[must_use]
    pub const fn new(text: &'a str, parameters: &'a [Parameter<'a>], is_pooled: bool) -> Self {
        Self { text, parameters, is_pooled }
    }
}

impl fmt::Debug for Query<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Query").field("text", &self.text).finish_non_exhaustive()
    }
}

/// A parameter of a [`Query`]; `None` is null. It has no `Debug`, because a parameter may be a key or a
/// result.
#[derive(Clone, Copy)]
pub enum Parameter<'a> {
    /// A `boolean`.
    Boolean(bool),
    /// A `smallint`.
    SmallInt(Option<i16>),
    /// A `bigint`.
    BigInt(Option<i64>),
    /// A `bytea`.
    Bytes(Option<&'a [u8]>),
    /// A `text`.
    Text(&'a str),
}

/// The name of a savepoint. No other savepoint of this process has the same name.
#[derive(Debug)]
pub struct SavepointName(u64);

impl SavepointName {
    /// A new name.
    #[must_use]
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The statement that sets the savepoint.
    #[must_use]
    pub fn set(&self) -> String {
        format!("SAVEPOINT idem_{}", self.0)
    }

    /// The statement that rolls back to the savepoint. It may run twice, because the savepoint stays.
    #[must_use]
    pub fn roll_back(&self) -> String {
        format!("ROLLBACK TO SAVEPOINT idem_{}", self.0)
    }

    /// The statement that removes the savepoint.
    #[must_use]
    pub fn release(&self) -> String {
        format!("RELEASE SAVEPOINT idem_{}", self.0)
    }
}

/// The error of a statement that the server refused, with its SQLSTATE if the driver returns it. `message`
/// must contain no value of a row, so pass the server's message, but not its detail.
#[must_use]
pub fn refused(code: Option<&str>, message: &str) -> StoreError {
    match code {
        Some(code) => failure::refused(code, message),
        None => StoreError::unavailable(format!("the server said \"{message}\"")),
    }
}

/// Ends the transaction on the server, so that the server accepts [`END_SESSION`]. Returns the error for a
/// driver whose count of savepoints differs from the caller's.
async fn displaced(tx: &mut impl DriverTransaction) -> Result<(), StoreError> {
    // The driver may first return errors of earlier statements, so this statement is repeated.
    for _ in 0..3 {
        let _ = tx.execute("ROLLBACK").await;
    }
    Err(idem_store_kit::sql::displaced())
}

/// The error of a lost connection: nothing in its transaction was applied.
#[must_use]
pub fn lost(message: impl fmt::Display) -> StoreError {
    StoreError::unavailable(format!("the connection of the transaction was lost ({message})"))
}
