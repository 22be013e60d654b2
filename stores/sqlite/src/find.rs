//! The statements that find a record and its steps, for the writer and for readers.

use std::ops::DerefMut;
use std::sync::LazyLock;

use rusqlite::Statement;

use super::rows::{self, COLUMNS, REPLAY_COLUMNS, RowError};
use idem_core::RecordKey;
use idem_core::protocol::Record;
use idem_store_kit::columns::Unreadable;

/// Finds a record and its rowid by scope and key.
pub(super) static FIND: LazyLock<String> =
    LazyLock::new(|| by_key("idem_records", &format!("{COLUMNS}, rowid")));

/// Finds the columns that a claim needs from a record with a result.
pub(super) static FIND_REPLAY: LazyLock<String> = LazyLock::new(|| by_key("idem_records", REPLAY_COLUMNS));

/// Finds the steps of a record.
pub(super) static FIND_STEPS: LazyLock<String> =
    LazyLock::new(|| by_key("idem_steps", "step") + " ORDER BY position");

/// Finds one step of a record.
pub(super) static FIND_STEP: LazyLock<String> =
    LazyLock::new(|| by_key("idem_steps", "step") + " AND position = ?3");

fn by_key(table: &str, columns: &str) -> String {
    format!("SELECT {columns} FROM {table} WHERE scope = ?1 AND key = ?2")
}

/// The parameters of a statement for one key.
pub(super) fn name(key: &RecordKey) -> [&str; 2] {
    [key.scope().as_str(), key.key().as_str()]
}

/// A record as it lies in the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StoredRecord {
    pub(super) record: Record,
    pub(super) row: i64,
}

/// Reads the record of a key with the statement [`FIND`], and its steps, if it has any, with [`FIND_STEPS`].
pub(super) fn find<'c, S: DerefMut<Target = Statement<'c>>>(
    statement: &mut Statement<'_>,
    steps: impl FnOnce() -> rusqlite::Result<S>,
    key: &RecordKey,
) -> Result<Option<StoredRecord>, RowError> {
    let name = name(key);
    let mut rows = statement.query(name)?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let (mut record, count) = rows::read(row)?;
    let row = row.get(rows::NUMBER_OF_COLUMNS)?;
    if count > 0 {
        // The first statement is still open, so both read the same snapshot.
        let mut statement = steps()?;
        let mut rows = statement.query(name)?;
        while let Some(row) = rows.next()? {
            record.steps.push(rows::read_step(row)?);
        }
        if u64::try_from(record.steps.len()).ok() != Some(count) {
            return Err(Unreadable("steps").into());
        }
    }
    Ok(Some(StoredRecord { record, row }))
}
