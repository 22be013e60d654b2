//! Transactions of sqlx.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ::sqlx::postgres::{PgConnection, PgRow, PgTransactionManager};
use ::sqlx::{AssertSqlSafe, Connection as _, Executor, PgPool, PgTransaction, Row as _, SqlSafeStr as _};
use futures_util::FutureExt as _;
use sqlx_core::transaction::TransactionManager as _;

use super::{DriverTransaction, END_SESSION, Parameter, Query, Row, displaced};
use crate::PostgresStore;
use crate::db::failure::{self, Failure};
use idem_core::StoreError;
use idem_core::transaction::TransactionPool;
use idem_store_kit::sql;

/// A future whose destructor does not run if it is dropped before its end.
///
/// If a nested `begin` of sqlx 0.9 is dropped, sqlx rolls back one level too many, such as the caller's whole
/// transaction. After a rollback of the whole transaction, each statement of the caller commits by itself.
/// Without the destructor, only an unused savepoint remains. A few hundred bytes leak.
struct WithoutDestructor<F>(Option<Pin<Box<F>>>);

impl<F: Future> Future for WithoutDestructor<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Some(future) = &mut self.0 else { return Poll::Pending };
        let output = ready!(future.as_mut().poll(cx));
        self.0 = None;
        Poll::Ready(output)
    }
}

impl<F> Drop for WithoutDestructor<F> {
    fn drop(&mut self) {
        std::mem::forget(self.0.take());
    }
}

pub(super) fn failed(error: &::sqlx::Error) -> StoreError {
    match failure::of_statement(error) {
        // If the connection is lost before the commit, the server rolls the transaction back, so nothing was
        // applied. If it is lost during `commit`, the transaction may be committed. Callers of `commit`
        // expect this after every error.
        Failure::Broken(error) => StoreError::unavailable(error.to_string()),
        failure => failure.error(),
    }
}

impl Row for PgRow {
    fn column(&self, index: usize) -> Option<&[u8]> {
        // The statement was prepared, so the column is in binary format.
        self.try_get_raw(index).ok()?.as_bytes().ok()
    }
}

impl DriverTransaction for PgConnection {
    type Row = PgRow;
    /// The nesting depth identifies the savepoint, because the driver itself counts savepoints.
    type Savepoint = usize;

    fn is_open(&mut self) -> bool {
        self.is_in_transaction()
    }

    async fn query(&mut self, query: Query<'_>) -> Result<Vec<PgRow>, StoreError> {
        let mut bound = ::sqlx::query(AssertSqlSafe(query.text)).persistent(!query.is_pooled);
        for parameter in query.parameters {
            bound = match *parameter {
                Parameter::Boolean(value) => bound.bind(value),
                Parameter::SmallInt(value) => bound.bind(value),
                Parameter::BigInt(value) => bound.bind(value),
                Parameter::Bytes(value) => bound.bind(value),
                Parameter::Text(value) => bound.bind(value),
            };
        }
        self.fetch_all(bound).await.map_err(|error| failed(&error))
    }

    async fn execute(&mut self, statement: &str) -> Result<(), StoreError> {
        Executor::execute(&mut *self, AssertSqlSafe(statement))
            .await
            .map(drop)
            .map_err(|error| failed(&error))
    }

    async fn set_savepoint(&mut self) -> Result<usize, StoreError> {
        let begin = WithoutDestructor(Some(Box::pin(PgTransactionManager::begin(self, None))));
        begin.await.map_err(|error| failed(&error))?;
        Ok(PgTransactionManager::get_transaction_depth(self))
    }

    async fn roll_back_to(&mut self, savepoint: &mut usize) -> Result<(), StoreError> {
        innermost(self, *savepoint).await?;
        sql::roll_back::<PgTransactionManager>(self).await.map_err(|error| failed(&error))
    }

    fn roll_back_first(&mut self, savepoint: &mut usize) {
        if PgTransactionManager::get_transaction_depth(self) == *savepoint {
            return PgTransactionManager::start_rollback(self);
        }
        while PgTransactionManager::get_transaction_depth(self) > 0 {
            PgTransactionManager::start_rollback(self);
        }
        // Uses `begin`, because the driver has no other method that queues a given statement without waiting.
        let end = PgTransactionManager::begin(self, Some(AssertSqlSafe(END_SESSION).into_sql_str()));
        let _ = WithoutDestructor(Some(Box::pin(end))).now_or_never();
    }

    async fn release(&mut self, savepoint: &mut usize) -> Result<(), StoreError> {
        innermost(self, *savepoint).await?;
        PgTransactionManager::commit(self).await.map_err(|error| failed(&error))
    }
}

/// Fails unless this savepoint is the innermost.
async fn innermost(connection: &mut PgConnection, savepoint: usize) -> Result<(), StoreError> {
    match sql::innermost::<PgTransactionManager>(connection, savepoint).await {
        Ok(()) => Ok(()),
        Err(_) => displaced(connection).await,
    }
}

impl TransactionPool<PostgresStore> for PgPool {
    type Connection = PgConnection;
    type Transaction = PgTransaction<'static>;

    async fn begin(&self) -> Result<Self::Transaction, StoreError> {
        Self::begin(self).await.map_err(|error| failure::of_connect(&error).error)
    }

    fn connection(transaction: &mut Self::Transaction) -> &mut PgConnection {
        transaction
    }

    async fn commit(transaction: Self::Transaction) -> Result<(), StoreError> {
        transaction.commit().await.map_err(|error| failed(&error))
    }

    async fn roll_back(transaction: Self::Transaction) {
        let _ = transaction.rollback().await;
    }
}
