//! A record as a row, and back. There are no rules and no SQL statements here.

use bytes::Bytes;
use rusqlite::types::ValueRef;
use rusqlite::{Row, Statement, ToSql, params_from_iter};

use idem_core::protocol::{Fingerprint, OnCrash, Owner, Record, RecordedStep, State, Timestamp, Tombstone};
use idem_core::{RecordKey, StoreError};
use idem_store_kit::columns::{Columns, NAMES, Unreadable, Word, micros, number_of, parts};
use idem_store_kit::step_bytes;

/// The columns of a record in the order that [`read`] expects.
pub(super) const COLUMNS: &str = "state, owner, fence, attempt, recovered, on_crash, lease_until, retry_at, \
     ttl, fingerprint, tombstone, created_at, completed_at, expires_at, result, steps";

/// The number of these columns.
pub(super) const NUMBER_OF_COLUMNS: usize = 16;

/// The columns that a claim needs from a record with a result, in the order that [`read_replay`] expects.
pub(super) const REPLAY_COLUMNS: &str =
    "state, attempt, fingerprint, tombstone, completed_at, expires_at, result";

/// Why a row is not a valid record.
#[derive(Debug)]
pub(super) enum RowError {
    /// SQLite could not return the row.
    Sqlite(rusqlite::Error),
    /// A column has an invalid value.
    Unreadable(Unreadable),
}

impl From<rusqlite::Error> for RowError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<Unreadable> for RowError {
    fn from(column: Unreadable) -> Self {
        Self::Unreadable(column)
    }
}

pub(super) type Result<T> = std::result::Result<T, RowError>;

/// The value, or the error of the one record of this key; fails if SQLite does.
pub(super) fn for_key<T>(
    value: Result<T>,
    key: &RecordKey,
) -> rusqlite::Result<std::result::Result<T, StoreError>> {
    match value {
        Ok(value) => Ok(Ok(value)),
        Err(RowError::Unreadable(column)) => Ok(Err(column.error(key))),
        Err(RowError::Sqlite(error)) => Err(error),
    }
}

/// The value of a column, if it is one that `read` takes.
fn value<'r, T>(
    row: &'r Row<'_>,
    index: usize,
    name: &'static str,
    read: impl FnOnce(ValueRef<'r>) -> Option<T>,
) -> Result<T> {
    read(row.get_ref(index)?).ok_or_else(|| Unreadable(name).into())
}

fn number(row: &Row<'_>, index: usize, name: &'static str) -> Result<Option<u64>> {
    value(row, index, name, |value| value.as_i64_or_null().ok()?.map(u64::try_from).transpose().ok())
}

fn bytes<'r>(row: &'r Row<'_>, index: usize, name: &'static str) -> Result<Option<&'r [u8]>> {
    value(row, index, name, |value| value.as_blob_or_null().ok())
}

/// The number of the word in a column.
fn word<W: Word>(
    row: &Row<'_>,
    index: usize,
    name: &'static str,
    meaning: fn(&str) -> Option<W>,
) -> Result<Option<u64>> {
    value(row, index, name, |value| match value.as_str_or_null().ok()? {
        None => Some(None),
        Some(text) => meaning(text).map(|word| Some(number_of(word).into())),
    })
}

/// The record, without its steps, in a row that begins with [`COLUMNS`], and the number of its steps.
pub(super) fn read(row: &Row<'_>) -> Result<(Record, u64)> {
    let number_or_word = |index: usize| match NAMES[index] {
        "state" => word(row, index, "state", State::from_word),
        "on_crash" => word(row, index, "on_crash", OnCrash::from_word),
        "tombstone" => word(row, index, "tombstone", Tombstone::from_word),
        name => number(row, index, name),
    };
    let columns = Columns::read(number_or_word, |index| bytes(row, index, NAMES[index]))?;
    let steps = number(row, NAMES.len(), "steps")?.ok_or(Unreadable("steps"))?;
    Ok((columns.record()?, steps))
}

/// The record in a row of [`REPLAY_COLUMNS`], if it has a result. The other columns are left out, because no claim on
/// such a record needs them: most repeated calls end here, and each column takes time.
pub(super) fn read_replay(row: &Row<'_>) -> Result<Option<Record>> {
    let state = word(row, 0, "state", State::from_word)?;
    let terminal = [State::Completed, State::Failed].map(|state| Some(u64::from(number_of(state))));
    if !terminal.contains(&state) {
        return Ok(None);
    }
    let columns = Columns {
        state,
        attempt: number(row, 1, "attempt")?,
        fingerprint: bytes(row, 2, "fingerprint")?,
        tombstone: word(row, 3, "tombstone", Tombstone::from_word)?,
        completed_at: number(row, 4, "completed_at")?,
        expires_at: number(row, 5, "expires_at")?,
        result: bytes(row, 6, "result")?,
        owner: Some(Owner::NOBODY.as_bytes()),
        ..Columns::BLANK
    };
    Ok(Some(columns.record()?))
}

/// The step in a row of one.
pub(super) fn read_step(row: &Row<'_>) -> Result<RecordedStep> {
    let step = bytes(row, 0, "steps")?.map(Bytes::copy_from_slice);
    Ok(step.and_then(step_bytes::decode).ok_or(Unreadable("steps"))?)
}

/// Runs a statement whose parameters are [`COLUMNS`] and these others, and returns whether it wrote the row.
pub(super) fn write(
    statement: &mut Statement<'_>,
    record: &Record,
    others: &[&dyn ToSql],
) -> rusqlite::Result<bool> {
    let (tombstone, result) = parts(record.result.as_ref());
    let columns: [&dyn ToSql; NUMBER_OF_COLUMNS] = [
        &record.state.as_str(),
        record.owner.as_bytes(),
        &integer(record.fence.get()),
        &record.attempt,
        &record.recovered,
        &record.on_crash.as_str(),
        &instant(record.lease_until),
        &instant(record.retry_at),
        &integer(micros(record.ttl)),
        &record.fingerprint.as_ref().map(Fingerprint::as_bytes),
        &tombstone.map(|reason| reason.as_str()),
        &instant(record.created_at),
        &record.completed_at.map(instant),
        &record.expires_at.map(instant),
        &result,
        &number_of_steps(record.steps.len()),
    ];
    Ok(statement.execute(params_from_iter(columns.iter().chain(others)))? > 0)
}

pub(super) fn number_of_steps(steps: usize) -> i64 {
    i64::try_from(steps).unwrap_or(i64::MAX)
}

/// The nearest integer that SQLite can store: larger numbers become the largest one, some 292,000 years from now.
pub(super) fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn instant(instant: Timestamp) -> i64 {
    integer(instant.as_micros())
}
