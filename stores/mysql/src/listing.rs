//! Walks through the table in the order of its primary key. Each page has a connection of its own: no other operation waits, and none stays
//! open behind a walk that nobody continues.

use sqlx::mysql::MySqlRow;

use super::reading::name;
use super::rows::{self, column};
use super::setting::Setting;
use crate::db::failure::{Failure, Stage};
use crate::db::session::{Answers, BEGINNING, Session};
use idem_core::StoreError;
use idem_core::listing::{Cursor, List, Page};
use idem_core::protocol::{Record, Timestamp};
use idem_store_kit::columns::Unreadable;
use idem_store_kit::sql;

/// One page.
pub(super) async fn list(setting: &Setting, request: &List) -> Result<Page, StoreError> {
    let looking = |mut session| async move { (page(&mut session, setting, request).await, session) };
    setting.connector.apart(looking).await
}

async fn page(session: &mut Session, setting: &Setting, request: &List) -> Result<Page, Failure> {
    let after = request.after.as_ref().and_then(Cursor::key).unwrap_or_default();
    let scope = request.scope.as_ref().map(|scope| scope.as_str());
    let text = setting.statements.list(scope, after, request.looked_at());
    let response = session.run(text, Stage::Open).await?;
    take(&response, request).map_err(Unreadable::failure)
}

fn take(response: &Answers, request: &List) -> Result<Page, Unreadable> {
    let now = response.rows(BEGINNING).first().ok_or(Unreadable("now"))?;
    let now = Timestamp::from_micros(column(now, 0, "now")?);
    sql::page(request, now, response.rows(BEGINNING + 1), |row| name(row).map(Some), record)
}

fn record(row: &MySqlRow) -> Result<(Record, Option<u64>), Unreadable> {
    rows::read(row, 2).map(|row| (row.record, row.result_bytes))
}
