//! Purges the table and walks through it, on connections of their own: no other operation waits, and none stays open behind a walk that
//! nobody continues.

use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::inspection;
use super::rows::{self, column};
use super::server::Setting;
use super::statements::Statements;
use crate::db::failure::Failure;
use crate::db::session::{Session, statement};
use idem_core::StoreError;
use idem_core::inspection::Inspection;
use idem_core::listing::{Cursor, List, Page};
use idem_core::protocol::{Record, Timestamp};
use idem_store_kit::columns::Unreadable;
use idem_store_kit::sql::{self, Housekeeping, Name};

/// How many records one statement deletes: few, so that it is short.
const PURGE_BATCH: usize = 2_000;

impl Housekeeping for Setting {
    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        let statements = &self.statements;
        let batch = |mut session, most| async move { (purge(&mut session, statements, most).await, session) };
        self.connector.purge(limit, PURGE_BATCH, batch).await
    }

    async fn list(&self, request: &List) -> Result<Page, StoreError> {
        let statements = &self.statements;
        let looking = |mut session| async move { (page(&mut session, statements, request).await, session) };
        self.connector.apart(looking).await
    }

    async fn inspect(&self) -> Result<Inspection, StoreError> {
        inspection::look(&self.connector).await
    }
}

/// Deletes one batch. Returns how many records it read, and how many of them it deleted.
async fn purge(
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

/// Reads one page, in the order of the primary key.
async fn page(session: &mut Session, statements: &Statements, request: &List) -> Result<Page, Failure> {
    let after = request.after.as_ref().and_then(Cursor::key);
    let (text, (scope, key)) = match &request.scope {
        Some(scope) => (&statements.list_scope, (scope.as_str(), after.map_or("", |(_, key)| key))),
        None => (&statements.list, after.unwrap_or_default()),
    };
    let query = statement(text)
        .bind(scope.as_bytes())
        .bind(key.as_bytes())
        .bind(i64::try_from(request.looked_at()).unwrap_or(i64::MAX));
    let answer = session.fetch_all(query).await?;
    let now = rows::unsigned(answer.first().ok_or(Unreadable("now"))?, 0, "now")?;
    Ok(sql::page(request, Timestamp::from_micros(now), &answer, name, record)?)
}

/// Scope and key of a row, or nothing where the page has none.
fn name(row: &PgRow) -> Result<Option<Name<'_>>, Unreadable> {
    let scope: Option<&[u8]> = column(row, 1, "scope")?;
    Ok(scope.zip(column(row, 2, "key")?))
}

fn record(row: &PgRow) -> Result<(Record, Option<u64>), Unreadable> {
    Ok((rows::read(row, 4)?, rows::optional(row, 3, "bytes")?))
}
