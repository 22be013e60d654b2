//! What is asked by operators and housekeeping: one statement each, alone.

use sqlx::Row as _;
use tokio::time::timeout;

use super::operation::{Answer, Answers};
use super::statements::Statements;
use crate::db::connector::Connector;
use crate::db::failure::{self, Failure};
use crate::db::session::{Session, statement};
use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::support::retry::retried;

/// How many records one statement deletes: few enough that it is over soon.
const PURGE_BATCH: usize = 2_000;

/// Deletes one record.
pub(super) async fn forget(
    session: &mut Session,
    statements: &Statements,
    key: &RecordKey,
) -> Result<Answers, Failure> {
    let query = statement(&statements.forget)
        .bind(key.scope().as_str().as_bytes())
        .bind(key.key().as_str().as_bytes());
    let given = session.fetch_all(query).await?;
    let live = given.first().is_some_and(|row| row.try_get::<bool, _>(0).unwrap_or(true));
    Ok(vec![Some(Ok(Answer::Forget(live)))])
}

/// Deletes at most `limit` records that are past their time, on a connection of its own, so that nobody
/// waits for it.
pub(super) async fn purge(
    connector: &Connector,
    statements: &Statements,
    limit: usize,
) -> Result<usize, StoreError> {
    let mut session = retried(connector.timeout(), || connector.connect()).await?;
    let mut purged = 0;
    while purged < limit {
        let most = PURGE_BATCH.min(limit - purged);
        let purging = timeout(connector.timeout(), purge_batch(&mut session, statements, most)).await;
        let now = match purging.unwrap_or_else(|_| Err(failure::late(connector.timeout()))) {
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
    session.close(connector.timeout()).await;
    Ok(purged)
}

async fn purge_batch(session: &mut Session, statements: &Statements, most: usize) -> Result<usize, Failure> {
    let query = statement(&statements.purge).bind(i64::try_from(most).unwrap_or(i64::MAX));
    let given = session.fetch_all(query).await?;
    let count = given.first().and_then(|row| row.try_get::<i64, _>(0).ok());
    Ok(count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0))
}
