//! Transactions of diesel-async.

use ::diesel_async::{
    AnsiTransactionManager, AsyncPgConnection, RunQueryDsl as _, SimpleAsyncConnection as _,
    TransactionManager as _,
};
use diesel::deserialize::{self, QueryableByName};
use diesel::pg::Pg;
use diesel::result::{DatabaseErrorKind, Error};
use diesel::row::{Field as _, NamedRow};
use diesel::sql_types::{BigInt, Binary, Bool, Nullable, SmallInt, Text};
use futures_util::FutureExt as _;

use super::{DriverTransaction, Parameter, Query, Row, SavepointName, lost, refused};
use idem_core::StoreError;

fn failed(error: &Error) -> StoreError {
    match error {
        Error::DatabaseError(
            DatabaseErrorKind::UnableToSendCommand | DatabaseErrorKind::ClosedConnection,
            said,
        ) => lost(said.message()),
        Error::DatabaseError(kind, said) => refused(code(kind), said.message()),
        other => lost(other),
    }
}

/// The SQLSTATE for some kinds of errors. The driver itself returns only the kind.
const fn code(kind: &DatabaseErrorKind) -> Option<&'static str> {
    match kind {
        DatabaseErrorKind::SerializationFailure => Some("40001"),
        DatabaseErrorKind::ReadOnlyTransaction => Some("25006"),
        _ => None,
    }
}

/// A row as the server sent it.
pub struct Sent(Vec<Option<Vec<u8>>>);

impl QueryableByName<Pg> for Sent {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> deserialize::Result<Self> {
        let column = |index| {
            let field = diesel::row::Row::get(row, index)?;
            field.value().map(|value| value.as_bytes().to_vec())
        };
        Ok(Self((0..row.field_count()).map(column).collect()))
    }
}

impl Row for Sent {
    fn column(&self, index: usize) -> Option<&[u8]> {
        self.0.get(index)?.as_deref()
    }
}

impl DriverTransaction for AsyncPgConnection {
    type Row = Sent;
    type Savepoint = SavepointName;

    fn is_open(&mut self) -> bool {
        let status = AnsiTransactionManager::transaction_manager_status_mut(self);
        status.transaction_depth().is_ok_and(|depth| depth.is_some())
    }

    async fn query(&mut self, query: Query<'_>) -> Result<Vec<Sent>, StoreError> {
        let mut bound = diesel::sql_query(query.text).into_boxed::<Pg>();
        for parameter in query.parameters {
            bound = match *parameter {
                Parameter::Boolean(value) => bound.bind::<Bool, _>(value),
                Parameter::SmallInt(value) => bound.bind::<Nullable<SmallInt>, _>(value),
                Parameter::BigInt(value) => bound.bind::<Nullable<BigInt>, _>(value),
                Parameter::Bytes(value) => bound.bind::<Nullable<Binary>, _>(value),
                Parameter::Text(value) => bound.bind::<Text, _>(value),
            };
        }
        bound.load(self).await.map_err(|error| failed(&error))
    }

    async fn execute(&mut self, statement: &str) -> Result<(), StoreError> {
        self.batch_execute(statement).await.map_err(|error| failed(&error))
    }

    // The driver's own method is not used, because it counts the savepoint before it awaits a future that may
    // be dropped.
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
