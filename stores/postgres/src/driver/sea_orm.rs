//! Transactions of SeaORM.

use ::sea_orm::{
    ConnectionTrait, DatabaseConnection, DatabaseTransaction, DbBackend, DbErr, QueryResult, RuntimeErr,
    Statement, TransactionTrait as _, Value,
};

use super::{DriverTransaction, Parameter, Query, Row, SavepointName, displaced, lost};
use crate::PostgresStore;
use idem_core::StoreError;
use idem_core::transaction::TransactionPool;

fn failed(error: &DbErr) -> StoreError {
    match error {
        DbErr::Conn(RuntimeErr::SqlxError(error))
        | DbErr::Exec(RuntimeErr::SqlxError(error))
        | DbErr::Query(RuntimeErr::SqlxError(error)) => super::sqlx::failed(error),
        other => lost(other),
    }
}

impl Row for QueryResult {
    fn column(&self, index: usize) -> Option<&[u8]> {
        self.try_as_pg_row()?.column(index)
    }
}

fn value(parameter: &Parameter<'_>) -> Value {
    match *parameter {
        Parameter::Boolean(value) => value.into(),
        Parameter::SmallInt(value) => value.into(),
        Parameter::BigInt(value) => value.into(),
        Parameter::Bytes(value) => value.map(<[u8]>::to_vec).into(),
        Parameter::Text(value) => value.into(),
    }
}

/// A nested transaction, and a savepoint in it. If the nested transaction is dropped, the connection rolls
/// back to the beginning of the nested transaction before the next statement. If a nested `begin` of the body
/// fails or is dropped, SeaORM rolls back too much. The store notices that, because its savepoint is missing.
type Savepoint = Option<(DatabaseTransaction, SavepointName)>;

macro_rules! transaction {
    ($type:ty) => {
        impl DriverTransaction for $type {
            type Row = QueryResult;
            type Savepoint = Savepoint;

            fn is_open(&mut self) -> bool {
                self.get_database_backend() == DbBackend::Postgres
            }

            async fn query(&mut self, query: Query<'_>) -> Result<Vec<QueryResult>, StoreError> {
                let values = query.parameters.iter().map(value);
                let statement = Statement::from_sql_and_values(DbBackend::Postgres, query.text, values);
                self.query_all_raw(statement).await.map_err(|error| failed(&error))
            }

            async fn execute(&mut self, statement: &str) -> Result<(), StoreError> {
                self.execute_unprepared(statement).await.map(drop).map_err(|error| failed(&error))
            }

            async fn set_savepoint(&mut self) -> Result<Savepoint, StoreError> {
                let mut nested = self.begin().await.map_err(|error| failed(&error))?;
                let name = SavepointName::unique();
                DriverTransaction::execute(&mut nested, &name.set()).await?;
                Ok(Some((nested, name)))
            }

            async fn roll_back_to(&mut self, savepoint: &mut Savepoint) -> Result<(), StoreError> {
                let Some((nested, name)) = savepoint.take() else { return Ok(()) };
                if DriverTransaction::execute(self, &name.roll_back()).await.is_err() {
                    return displaced(self).await;
                }
                nested.rollback().await.map_err(|error| failed(&error))
            }

            fn roll_back_first(&mut self, savepoint: &mut Savepoint) {
                drop(savepoint.take());
            }

            async fn release(&mut self, savepoint: &mut Savepoint) -> Result<(), StoreError> {
                let Some((nested, name)) = savepoint.take() else { return Ok(()) };
                if DriverTransaction::execute(self, &name.release()).await.is_err() {
                    return displaced(self).await;
                }
                nested.commit().await.map_err(|error| failed(&error))
            }
        }
    };
}

transaction!(DatabaseTransaction);
// Functions of users may take a shared reference to the transaction, as SeaORM's own functions do.
transaction!(&DatabaseTransaction);

impl TransactionPool<PostgresStore> for DatabaseConnection {
    type Connection = DatabaseTransaction;
    type Transaction = DatabaseTransaction;

    async fn begin(&self) -> Result<DatabaseTransaction, StoreError> {
        sea_orm::TransactionTrait::begin(self).await.map_err(|error| failed(&error))
    }

    fn connection(transaction: &mut DatabaseTransaction) -> &mut DatabaseTransaction {
        transaction
    }

    async fn commit(transaction: DatabaseTransaction) -> Result<(), StoreError> {
        transaction.commit().await.map_err(|error| failed(&error))
    }

    async fn roll_back(transaction: DatabaseTransaction) {
        let _ = transaction.rollback().await;
    }
}
