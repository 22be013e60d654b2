//! Transactions of tokio-postgres, also through pools such as deadpool-postgres.

use ::tokio_postgres::types::{FromSql, ToSql, Type};
use ::tokio_postgres::{Error, Row as PgRow, Transaction};
use futures_util::FutureExt as _;

use super::{DriverTransaction, Parameter, Query, Row, SavepointName, lost, refused};
use idem_core::StoreError;

fn failed(error: &Error) -> StoreError {
    match error.as_db_error() {
        Some(error) => refused(Some(error.code().code()), error.message()),
        None => lost(error),
    }
}

/// A column as the server sent it.
struct Sent<'a>(Option<&'a [u8]>);

impl<'a> FromSql<'a> for Sent<'a> {
    fn from_sql(_: &Type, bytes: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(Some(bytes)))
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(None))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

impl Row for PgRow {
    fn column(&self, index: usize) -> Option<&[u8]> {
        self.try_get::<_, Sent<'_>>(index).ok()?.0
    }
}

fn typed<'a>(parameter: &'a Parameter<'a>) -> (&'a (dyn ToSql + Sync), Type) {
    match parameter {
        Parameter::Boolean(value) => (value, Type::BOOL),
        Parameter::SmallInt(value) => (value, Type::INT2),
        Parameter::BigInt(value) => (value, Type::INT8),
        Parameter::Bytes(value) => (value, Type::BYTEA),
        Parameter::Text(value) => (value, Type::TEXT),
    }
}

impl DriverTransaction for Transaction<'_> {
    type Row = PgRow;
    type Savepoint = SavepointName;

    fn is_open(&mut self) -> bool {
        true
    }

    // Sends the types of the parameters with the statement. Such a statement needs no name on the server and
    // no exchange to prepare it, so it works through a pooler.
    async fn query(&mut self, query: Query<'_>) -> Result<Vec<PgRow>, StoreError> {
        let parameters: Vec<_> = query.parameters.iter().map(typed).collect();
        self.query_typed(query.text, &parameters).await.map_err(|error| failed(&error))
    }

    async fn execute(&mut self, statement: &str) -> Result<(), StoreError> {
        self.batch_execute(statement).await.map_err(|error| failed(&error))
    }

    async fn set_savepoint(&mut self) -> Result<SavepointName, StoreError> {
        let savepoint = SavepointName::unique();
        DriverTransaction::execute(self, &savepoint.set()).await?;
        Ok(savepoint)
    }

    async fn roll_back_to(&mut self, savepoint: &mut SavepointName) -> Result<(), StoreError> {
        DriverTransaction::execute(self, &savepoint.roll_back()).await
    }

    fn roll_back_first(&mut self, savepoint: &mut SavepointName) {
        // The driver sends a statement when its future is first polled, after all earlier statements.
        let _ = self.batch_execute(&savepoint.roll_back()).now_or_never();
    }

    async fn release(&mut self, savepoint: &mut SavepointName) -> Result<(), StoreError> {
        DriverTransaction::execute(self, &savepoint.release()).await
    }
}
