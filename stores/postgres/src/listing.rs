//! Walks through the table, in the order of its primary key.
//!
//! The walk has a connection of its own, so that no other operation waits. It is kept between pages as those of the workers are
//! between statements. The server reads only the length of a result.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgRow;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use super::rows::{self, Unreadable, column};
use super::setting::Setting;
use super::statements::Statements;
use crate::db::failure::Failure;
use crate::db::session::{Session, statement};
use idem_core::StoreError;
use idem_core::listing::{self, Cursor, List, Listed, Page};
use idem_core::protocol::Timestamp;
use idem_core::support::retry::retried;

/// How long the connection of a walk waits for its next page.
const IDLE: Duration = Duration::from_secs(60);

/// The connection of a walk in progress.
pub(super) type Walking = Arc<Mutex<Walk>>;

#[derive(Default)]
pub(super) struct Walk {
    session: Option<Session>,
    /// How many pages were read.
    pages: u64,
}

/// One page.
pub(super) async fn list(setting: &Setting, walking: &Walking, request: &List) -> Result<Page, StoreError> {
    let (connector, statements) = (&setting.connector, &setting.statements);
    retried(connector.timeout(), || async {
        // Another walk at the same time waits for this page.
        let mut walk = walking.lock().await;
        let open = match walk.session.take() {
            Some(session) => connector.kept(session).await,
            None => None,
        };
        let mut session = match open {
            Some(session) => session,
            None => connector.connect().await?,
        };
        let looked = timeout(connector.timeout(), page(&mut session, statements, request));
        let page = looked.await.unwrap_or_else(|_| Err(Failure::late(connector.timeout())));
        let page = page.map_err(Failure::error)?;
        // A page of one record is seldom the first of many: a cache looks at the server's clock by it.
        if page.next.is_none() || request.looked_at() == 1 {
            session.close(connector.timeout()).await;
            return Ok(page);
        }
        walk.session = Some(session);
        walk.pages += 1;
        let (pages, walking, time) = (walk.pages, Arc::downgrade(walking), connector.timeout());
        tokio::spawn(async move {
            sleep(IDLE).await;
            let Some(walking) = walking.upgrade() else { return };
            let mut walk = walking.lock().await;
            if walk.pages == pages
                && let Some(session) = walk.session.take()
            {
                session.close(time).await;
            }
        });
        Ok(page)
    })
    .await
}

async fn page(session: &mut Session, statements: &Statements, request: &List) -> Result<Page, Failure> {
    let after = request.after.as_ref().and_then(Cursor::key);
    let (text, (scope, key)) = match &request.scope {
        Some(scope) => (&statements.list_scope, (scope.as_str(), after.map_or("", |(_, key)| key))),
        None => (&statements.list, after.unwrap_or_default()),
    };
    let looked_at = request.looked_at();
    let query = statement(text)
        .bind(scope.as_bytes())
        .bind(key.as_bytes())
        .bind(i64::try_from(looked_at).unwrap_or(i64::MAX));
    let found = session.fetch_all(query).await?;
    take(&found, request).map_err(Unreadable::failure)
}

fn take(found: &[PgRow], request: &List) -> Result<Page, Unreadable> {
    let now = found.first().ok_or(Unreadable("now")).and_then(|row| rows::unsigned(row, 0, "now"))?;
    let mut page = Page::new(Timestamp::from_micros(now));
    let mut last = None;
    for row in found {
        let scope = column::<Option<&[u8]>>(row, 1, "scope")?;
        let key = column::<Option<&[u8]>>(row, 2, "key")?;
        let text = |bytes: Option<&'_ [u8]>| bytes.map(<[u8]>::to_vec).map(String::from_utf8);
        // Otherwise there is no row, or its name is not UTF-8 and belongs to no record.
        let (Some(Ok(scope)), Some(Ok(key))) = (text(scope), text(key)) else { continue };
        last = Some(Cursor::behind_name(&scope, &key));
        let Some(key) = listing::name(&scope, &key) else { continue };
        match rows::read(row, 4) {
            Ok(record) if request.takes(record.state) => {
                let bytes = column::<Option<i64>>(row, 3, "bytes")?;
                let bytes = bytes.and_then(|bytes| u64::try_from(bytes).ok());
                page.records.push(Listed::without_value(key, record, bytes));
            }
            Ok(_) => {}
            Err(_) => page.unreadable.push(key),
        }
    }
    page.next = last.filter(|_| found.len() == request.looked_at());
    Ok(page)
}
