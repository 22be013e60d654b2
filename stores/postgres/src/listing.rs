//! Walks through the table, in the order of its primary key.
//!
//! Each page has a connection of its own: no other operation waits, and none stays open behind a walk that nobody continues. The server
//! reads only the length of a result.

use sqlx::postgres::PgRow;

use super::rows::{self, column};
use super::setting::Setting;
use super::statements::Statements;
use crate::db::failure::Failure;
use crate::db::session::{Session, statement};
use idem_core::StoreError;
use idem_core::listing::{Cursor, List, Page};
use idem_core::protocol::{Record, Timestamp};
use idem_store_kit::columns::Unreadable;
use idem_store_kit::sql::{self, Name};

/// One page.
pub(super) async fn list(setting: &Setting, request: &List) -> Result<Page, StoreError> {
    let Setting { connector, statements, .. } = setting;
    let looking = |mut session| async move { (page(&mut session, statements, request).await, session) };
    connector.apart(looking).await
}

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
    let found = session.fetch_all(query).await?;
    let now = rows::unsigned(found.first().ok_or(Unreadable("now"))?, 0, "now")?;
    Ok(sql::page(request, Timestamp::from_micros(now), &found, name, record)?)
}

/// Scope and key of a row, or nothing where the page has none.
fn name(row: &PgRow) -> Result<Option<Name<'_>>, Unreadable> {
    let scope: Option<&[u8]> = column(row, 1, "scope")?;
    Ok(scope.zip(column(row, 2, "key")?))
}

fn record(row: &PgRow) -> Result<(Record, Option<u64>), Unreadable> {
    Ok((rows::read(row, 4)?, rows::optional(row, 3, "bytes")?))
}
