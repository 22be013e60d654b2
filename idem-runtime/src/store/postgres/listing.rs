//! Walking through the table, in the order of its primary key.
//!
//! On a connection of its own, which is kept from page to page, so that nobody waits for a walk. Results
//! stay where they are: of one that is there the server reads the length.

use std::sync::Arc;

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::failure::{self, Failure};
use super::names::Names;
use super::queue::Queues;
use super::rows::{self, COLUMNS, Unreadable, column};
use super::statements::NOW;
use crate::error::StoreError;
use crate::listing::{self, Cursor, List, Listed, Page};
use crate::protocol::Timestamp;
use crate::store::retry::retried;

/// The connection of a walk, while one is under way.
pub(super) type Walking = Arc<Mutex<Option<PgConnection>>>;

/// The texts, of everything and of one scope. $1 scope and $2 key behind which the page begins, $3 how many
/// rows. Row: now, scope, key, length of the result, the record's columns; or now alone.
#[derive(Debug)]
pub(super) struct Statements {
    all: Arc<str>,
    of_scope: Arc<str>,
}

impl Statements {
    pub(super) fn new(names: &Names) -> Self {
        let text = |which: &str| {
            let columns = COLUMNS.map(|column| match column {
                "result" => "CASE WHEN result IS NOT NULL THEN ''::bytea END AS result",
                column => column,
            });
            format!(
                "SELECT clock.now, page.* FROM (SELECT {NOW} AS now) clock LEFT JOIN ( \
                   SELECT scope, key, octet_length(result)::bigint AS bytes, {} FROM {} WHERE {which} \
                   ORDER BY scope, key LIMIT $3) page ON true ORDER BY page.scope, page.key",
                columns.join(", "),
                names.records
            )
        };
        Self { all: text("(scope, key) > ($1, $2)").into(), of_scope: text("scope = $1 AND key > $2").into() }
    }
}

/// One page.
pub(super) async fn list(queues: &Queues, walking: &Walking, request: &List) -> Result<Page, StoreError> {
    let setting = queues.setting();
    let (opening, statements) = (&setting.opening, &setting.statements.listing);
    retried(opening.time(), || async {
        // Another walk at the same time waits for this page.
        let mut walking = walking.lock().await;
        let connection = match walking.as_mut() {
            Some(connection) => connection,
            None => walking.insert(opening.open().await?),
        };
        let looked = timeout(opening.time(), page(connection, statements, request));
        match looked.await.unwrap_or_else(|_| Err(failure::late(opening.time()))) {
            Ok(page) => {
                if page.next.is_none()
                    && let Some(connection) = walking.take()
                {
                    // It has done what it was opened for, whether the server hears of it or not.
                    let _ = timeout(opening.time(), PgConnection::close(connection)).await;
                }
                Ok(page)
            }
            Err(failure) => {
                *walking = None;
                Err(failure.error())
            }
        }
    })
    .await
}

async fn page(
    connection: &mut PgConnection,
    statements: &Statements,
    request: &List,
) -> Result<Page, Failure> {
    let after = request.after.as_ref().and_then(Cursor::key);
    let (statement, (scope, key)) = match &request.scope {
        Some(scope) => (&statements.of_scope, (scope.as_str(), after.map_or("", |(_, key)| key))),
        None => (&statements.all, after.unwrap_or_default()),
    };
    let looked_at = request.looked_at();
    let query = sqlx::query(AssertSqlSafe(statement.clone()))
        .bind(scope.as_bytes())
        .bind(key.as_bytes())
        .bind(i64::try_from(looked_at).unwrap_or(i64::MAX));
    let found = connection.fetch_all(query).await.map_err(|error| failure::of_statement(&error))?;
    take(&found, request).map_err(|Unreadable(column)| {
        Failure::Refused(StoreError::corrupt_record(format!(
            "the server gave a column {column} that is none"
        )))
    })
}

fn take(found: &[PgRow], request: &List) -> Result<Page, Unreadable> {
    let now = found.first().ok_or(Unreadable("now")).and_then(|row| rows::unsigned(row, 0, "now"))?;
    let mut page = Page::new(Timestamp::from_micros(now));
    let mut last = None;
    for row in found {
        let scope = column::<Option<&[u8]>>(row, 1, "scope")?;
        let key = column::<Option<&[u8]>>(row, 2, "key")?;
        let text = |bytes: Option<&'_ [u8]>| bytes.map(<[u8]>::to_vec).map(String::from_utf8);
        // Else there is no row, or one whose name is no text and so no record's.
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
