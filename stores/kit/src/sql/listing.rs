//! A page of records, from the rows of a walk in the order of the primary key.

use idem_core::listing::{self, Cursor, List, Listed, Page};
use idem_core::protocol::{Record, Timestamp};

use super::Name;
use crate::columns::Unreadable;

/// The page with these rows. `name` reads the scope and the key of a row. For an empty page, the server may
/// return one row without a record; for this row, `name` returns `None`. `record` reads the record of a row,
/// with an empty value in place of its result. It also returns the length of the result.
///
/// # Errors
///
/// The name of a wrong column, if the page cannot be made without that column.
pub fn page<'r, R>(
    request: &List,
    now: Timestamp,
    rows: &'r [R],
    name: impl Fn(&'r R) -> Result<Option<Name<'r>>, Unreadable>,
    record: impl Fn(&'r R) -> Result<(Record, Option<u64>), Unreadable>,
) -> Result<Page, Unreadable> {
    let mut page = Page::new(now);
    let mut last = None;
    for row in rows {
        // A name that is not UTF-8 belongs to no record.
        let texts = name(row)?.map(|(scope, key)| (str::from_utf8(scope), str::from_utf8(key)));
        let Some((Ok(scope), Ok(key))) = texts else { continue };
        last = Some(Cursor::behind_name(scope, key));
        let Some(key) = listing::name(scope, key) else { continue };
        match record(row) {
            Ok((record, bytes)) if request.takes(record.state) => {
                page.records.push(Listed::without_value(key, record, bytes));
            }
            Ok(_) => {}
            Err(_) => page.unreadable.push(key),
        }
    }
    page.next = last.filter(|_| rows.len() == request.looked_at());
    Ok(page)
}
