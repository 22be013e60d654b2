//! Deletes records, for operators and purges: one statement each.

use sqlx::Row as _;
use tokio::time::timeout;

use super::statements::Statements;
use crate::db::connector::Connector;
use crate::db::failure::Failure;
use crate::db::session::{Session, statement};
use idem_core::RecordKey;
use idem_core::StoreError;
use idem_store_kit::group_commit::{Answer, Answers};
use idem_store_kit::retry::retried;

/// How many records one statement deletes: few, so that it is short.
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
    Ok(vec![Some(Ok(Answer::Forgotten(live)))])
}

/// Deletes at most `limit` expired records, on a connection of its own, so that no other operation waits.
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
        let (looked_at, now) = match purging.unwrap_or_else(|_| Err(Failure::late(connector.timeout()))) {
            Ok(counts) => counts,
            Err(failure) if purged == 0 => return Err(failure.error()),
            // Returns the count so far; the next call reports the error if it lasts.
            Err(_) => break,
        };
        purged += now;
        if looked_at < most {
            break;
        }
    }
    session.close(connector.timeout()).await;
    Ok(purged)
}

/// Deletes one batch. Returns how many records it read, and how many of them it deleted.
async fn purge_batch(
    session: &mut Session,
    statements: &Statements,
    most: usize,
) -> Result<(usize, usize), Failure> {
    let query = statement(&statements.purge).bind(i64::try_from(most).unwrap_or(i64::MAX));
    let given = session.fetch_all(query).await?;
    let count = |column: usize| {
        let count = given.first().and_then(|row| row.try_get::<i64, _>(column).ok());
        count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0)
    };
    Ok((count(0), count(1)))
}
