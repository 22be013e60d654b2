//! Walks through the table in the order of its primary key. Each page has a connection of its own: no other operation waits, and none stays
//! open behind a walk that nobody continues.

use sqlx::mysql::MySqlRow;
use tokio::time::timeout;

use super::reading::name;
use super::rows::{self, Unreadable, column};
use super::setting::Setting;
use crate::db::failure::{Failure, Stage};
use crate::db::session::{Answers, BEGINNING, Session};
use idem_core::StoreError;
use idem_core::listing::{self, Cursor, List, Listed, Page};
use idem_core::protocol::Timestamp;
use idem_core::support::retry::retried;

/// One page.
pub(super) async fn list(setting: &Setting, request: &List) -> Result<Page, StoreError> {
    let connector = &setting.connector;
    retried(connector.timeout, || async {
        let mut session = connector.connect().await?;
        let looked = timeout(connector.timeout, page(&mut session, setting, request)).await;
        let page =
            looked.unwrap_or_else(|_| Err(Failure::late(connector.timeout))).map_err(Failure::error)?;
        session.close(connector.timeout).await;
        Ok(page)
    })
    .await
}

async fn page(session: &mut Session, setting: &Setting, request: &List) -> Result<Page, Failure> {
    let after = request.after.as_ref().and_then(Cursor::key).unwrap_or_default();
    let scope = request.scope.as_ref().map(|scope| scope.as_str());
    let text = setting.statements.list(scope, after, request.looked_at());
    let found = session.run(text, Stage::Open).await?;
    take(&found, request).map_err(Unreadable::failure)
}

fn take(found: &Answers, request: &List) -> Result<Page, Unreadable> {
    let now = found.rows(BEGINNING).first().ok_or(Unreadable("now"))?;
    let now = column::<u64>(now, 0, "now")?;
    let rows = found.rows(BEGINNING + 1);
    let mut page = Page::new(Timestamp::from_micros(now));
    let mut last = None;
    for row in rows {
        // A name that is not UTF-8 belongs to no record.
        let Some((scope, key)) = text(row)? else { continue };
        last = Some(Cursor::behind_name(scope, key));
        let Some(key) = listing::name(scope, key) else { continue };
        match rows::read(row, 2) {
            Ok(row) if request.takes(row.record.state) => {
                page.records.push(Listed::without_value(key, row.record, row.result_bytes));
            }
            Ok(_) => {}
            Err(_) => page.unreadable.push(key),
        }
    }
    page.next = last.filter(|_| rows.len() == request.looked_at());
    Ok(page)
}

fn text(row: &MySqlRow) -> Result<Option<(&str, &str)>, Unreadable> {
    let (scope, key) = name(row)?;
    Ok(str::from_utf8(scope).ok().zip(str::from_utf8(key).ok()))
}
