//! Deletes records, for operators and purges: one statement each.

use sqlx::Row as _;

use super::setting::Setting;
use super::statements::Statements;
use crate::db::failure::Failure;
use crate::db::session::{Session, statement};
use idem_core::RecordKey;
use idem_core::StoreError;
use idem_store_kit::group_commit::{Answer, Answers};
use idem_store_kit::sql::name;

/// How many records one statement deletes: few, so that it is short.
const PURGE_BATCH: usize = 2_000;

/// Deletes one record.
pub(super) async fn forget(
    session: &mut Session,
    statements: &Statements,
    key: &RecordKey,
) -> Result<Answers, Failure> {
    let (scope, key) = name(key);
    let rows = session.fetch_all(statement(&statements.forget).bind(scope).bind(key)).await?;
    let live = rows.first().is_some_and(|row| row.try_get::<bool, _>(0).unwrap_or(true));
    Ok(vec![Some(Ok(Answer::Forgotten(live)))])
}

/// Deletes at most `limit` expired records, on a connection of its own, so that no other operation waits.
pub(super) async fn purge(setting: &Setting, limit: usize) -> Result<usize, StoreError> {
    let Setting { connector, statements, .. } = setting;
    let batch =
        |mut session, most| async move { (purge_batch(&mut session, statements, most).await, session) };
    connector.purge(limit, PURGE_BATCH, batch).await
}

/// Deletes one batch. Returns how many records it read, and how many of them it deleted.
async fn purge_batch(
    session: &mut Session,
    statements: &Statements,
    most: usize,
) -> Result<(usize, usize), Failure> {
    let query = statement(&statements.purge).bind(i64::try_from(most).unwrap_or(i64::MAX));
    let rows = session.fetch_all(query).await?;
    let count = |column: usize| {
        let count = rows.first().and_then(|row| row.try_get::<i64, _>(column).ok());
        count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0)
    };
    Ok((count(0), count(1)))
}
