//! Walks through the table in the order of its primary key. Each page has a connection of its own: no other operation waits, and none stays
//! open behind a walk that nobody continues.

use super::reading::name;
use super::rows;
use super::setting::Setting;
use crate::db::failure::{Failure, Stage};
use crate::db::session::{BEGINNING, Session};
use idem_core::StoreError;
use idem_core::listing::{Cursor, List, Page};
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
    let now = rows::now(response.rows(BEGINNING).first(), 0)?;
    let name = |row| name(row).map(Some);
    let record = |row| rows::read(row, 2).map(|row| (row.record, row.result_bytes));
    Ok(sql::page(request, now, response.rows(BEGINNING + 1), name, record)?)
}
