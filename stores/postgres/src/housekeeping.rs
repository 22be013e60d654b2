//! Purges, lists and inspects, and stores the fact that callers use transactions. Each operation runs on a
//! separate connection.

use std::sync::atomic::AtomicBool;

use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::inspection;
use super::rows::{self, column};
use super::server::Setting;
use crate::db::connector::{Connector, Opener};
use crate::db::failure::Failure;
use crate::db::session::{Session, statement};
use idem_core::inspection::Inspection;
use idem_core::listing::{Cursor, List, Page};
use idem_core::protocol::{Record, Timestamp};
use idem_store_kit::columns::Unreadable;
use idem_store_kit::sql::{self, Housekeeping, Name};

impl Housekeeping for Setting {
    type Opener = Opener;

    const PURGE_BATCH: usize = 2_000;

    fn connector(&self) -> &Connector {
        &self.connector
    }

    async fn purge(&self, session: &mut Session, most: usize) -> Result<(usize, usize), Failure> {
        let query = statement(&self.statements.purge).bind(i64::try_from(most).unwrap_or(i64::MAX));
        let rows = session.fetch_all(query).await?;
        let count = |column: usize| {
            let count = rows.first().and_then(|row| row.try_get::<i64, _>(column).ok());
            count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0)
        };
        Ok((count(0), count(1)))
    }

    async fn list(&self, session: &mut Session, request: &List) -> Result<Page, Failure> {
        let (after, statements) = (request.after.as_ref().and_then(Cursor::key), &self.statements);
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

    async fn inspect(&self, session: &mut Session) -> Result<Inspection, Failure> {
        inspection::look(session).await
    }

    fn has_transactions(&self) -> &AtomicBool {
        &self.statements.with_transactions
    }

    async fn mark_transactions(&self, session: &mut Session) -> Result<(), Failure> {
        session.fetch_all(statement(&self.statements.set_transactions)).await.map(drop)
    }
}

/// Scope and key of a row; `None` for the single row of an empty page.
fn name(row: &PgRow) -> Result<Option<Name<'_>>, Unreadable> {
    let scope: Option<&[u8]> = column(row, 1, "scope")?;
    Ok(scope.zip(column(row, 2, "key")?))
}

fn record(row: &PgRow) -> Result<(Record, Option<u64>), Unreadable> {
    Ok((rows::read(row, 4)?, rows::optional(row, 3, "bytes")?))
}
