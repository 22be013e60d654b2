//! What is asked by operators and housekeeping: one statement each, alone.

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, Row as _};
use tokio::time::timeout;

use super::failure::{self, Failure};
use super::queue::Answer;
use super::session::Opening;
use super::statements::Statements;
use super::worker::Answers;
use crate::error::StoreError;
use crate::key::RecordKey;
use crate::store::retry::retried;

/// How many records one statement deletes: few enough that it is over soon.
const PURGE_BATCH: usize = 2_000;

/// Deletes one record.
pub(super) async fn forget(
    connection: &mut PgConnection,
    statements: &Statements,
    key: &RecordKey,
) -> Result<Answers, Failure> {
    let query = sqlx::query(AssertSqlSafe(statements.forget.clone()))
        .bind(key.scope().as_str().as_bytes())
        .bind(key.key().as_str().as_bytes());
    let given = connection.fetch_all(query).await.map_err(|error| failure::of_statement(&error))?;
    let live = given.first().is_some_and(|row| row.try_get::<bool, _>(0).unwrap_or(true));
    Ok(vec![Ok(Answer::Forget(live))])
}

/// Deletes at most `limit` records that are past their time, on a connection of its own, so that nobody
/// waits for it.
pub(super) async fn purge(
    opening: &Opening,
    statements: &Statements,
    limit: usize,
) -> Result<usize, StoreError> {
    let mut connection = retried(opening.time(), || opening.open()).await?;
    let mut purged = 0;
    while purged < limit {
        let most = PURGE_BATCH.min(limit - purged);
        let now = match purge_batch(&mut connection, statements, most).await {
            Ok(now) => now,
            Err(failure) if purged == 0 => return Err(failure.error()),
            // What was done is told now, and the error when it is met again.
            Err(_) => break,
        };
        purged += now;
        if now < most {
            break;
        }
    }
    // It has done what it was opened for, whether the server hears of it or not.
    let _ = timeout(opening.time(), PgConnection::close(connection)).await;
    Ok(purged)
}

async fn purge_batch(
    connection: &mut PgConnection,
    statements: &Statements,
    most: usize,
) -> Result<usize, Failure> {
    let query =
        sqlx::query(AssertSqlSafe(statements.purge.clone())).bind(i64::try_from(most).unwrap_or(i64::MAX));
    let given = connection.fetch_all(query).await.map_err(|error| failure::of_statement(&error))?;
    let count = given.first().and_then(|row| row.try_get::<i64, _>(0).ok());
    Ok(count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0))
}
