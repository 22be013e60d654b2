//! Walking through a file in the order of scope and key.
//!
//! Results are not read: SQLite reads only the length of a result, not its pages.

use rusqlite::{Connection, Row, params_from_iter};

use super::now;
use super::rows::{self, COLUMNS, RowError};
use idem_core::listing::{self, Cursor, List, Listed, Page};

/// One page. A row that is not a valid record does not prevent the listing of the other rows.
pub(super) fn page(connection: &Connection, request: &List) -> rusqlite::Result<Page> {
    let after = request.after.as_ref().and_then(Cursor::key);
    let (which, mut parameters) = match &request.scope {
        Some(scope) => ("scope = ?1 AND key > ?2", vec![scope.as_str(), after.map_or("", |(_, key)| key)]),
        None => ("(scope, key) > (?1, ?2)", after.map_or(vec!["", ""], |(scope, key)| vec![scope, key])),
    };
    let looked_at = request.looked_at();
    let limit = looked_at.to_string();
    parameters.push(&limit);
    let columns = COLUMNS.replace("result", "CASE WHEN result IS NOT NULL THEN x'' END");
    let sql = format!(
        "SELECT {columns}, scope, key, length(result) FROM idem_records WHERE {which} \
         ORDER BY scope, key LIMIT CAST(?3 AS INTEGER)"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let named = statement.column_count() - 3;
    let mut page = Page::new(now());
    let mut rows = statement.query(params_from_iter(parameters))?;
    let (mut seen, mut last) = (0, None);
    while let Some(row) = rows.next()? {
        seen += 1;
        let Some((scope, key)) = name(row, named)? else { continue };
        last = Some(Cursor::behind_name(scope, key));
        let Some(key) = listing::name(scope, key) else { continue };
        match rows::read(row) {
            Ok((record, _)) if request.takes(record.state) => {
                let bytes = row.get::<_, Option<i64>>(named + 2)?.and_then(|bytes| u64::try_from(bytes).ok());
                page.records.push(Listed::without_value(key, record, bytes));
            }
            Ok(_) => {}
            Err(RowError::Unreadable(_)) => page.unreadable.push(key),
            Err(RowError::Sqlite(error)) => return Err(error),
        }
    }
    page.next = last.filter(|_| seen == looked_at);
    Ok(page)
}

/// The scope and the key of a row, if both are text.
fn name<'r>(row: &'r Row<'_>, first: usize) -> rusqlite::Result<Option<(&'r str, &'r str)>> {
    let (scope, key) = (row.get_ref(first)?, row.get_ref(first + 1)?);
    Ok(scope.as_str().ok().zip(key.as_str().ok()))
}
