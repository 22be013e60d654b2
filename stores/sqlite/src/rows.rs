//! A record as its rows: the statements that find a record and its steps, and its columns. Contains no rule
//! of the protocol.

use std::sync::LazyLock;

use bytes::Bytes;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, Statement, ToSql, params, params_from_iter};

use idem_core::protocol::{
    Fingerprint, OnCrash, Owner, Record, RecordedStep, State, StoredResult, Timestamp, Tombstone,
};
use idem_core::{RecordKey, StoreError};
use idem_store_kit::columns::{Columns, NAMES, Unreadable, Word, micros, number_of, parts};
use idem_store_kit::step_bytes;

/// The columns of a record in the order that [`read`] expects.
pub(super) const COLUMNS: &str = "state, owner, fence, attempt, recovered, on_crash, lease_until, retry_at, \
     ttl, fingerprint, tombstone, created_at, completed_at, expires_at, result, steps";

const NUMBER_OF_COLUMNS: usize = 16;

/// Upper limit of the blank steps of [`Steps::Only`]. If a row reports more steps, all of them are read and
/// counted, because the number in a damaged row may be wrong.
const MOST_BLANKS: usize = 65_536;

static FIND: LazyLock<String> =
    LazyLock::new(|| format!("SELECT {COLUMNS}, rowid FROM idem_records WHERE scope = ?1 AND key = ?2"));

/// Finds the columns that a claim needs from a record with a result.
const FIND_REPLAY: &str = "SELECT state, attempt, fingerprint, tombstone, completed_at, expires_at, result \
     FROM idem_records WHERE scope = ?1 AND key = ?2";

const FIND_STEPS: &str = "SELECT step FROM idem_steps WHERE scope = ?1 AND key = ?2 ORDER BY position";

const FIND_STEP: &str = "SELECT step FROM idem_steps WHERE scope = ?1 AND key = ?2 AND position = ?3";

/// The parameters of a statement for one key.
pub(super) fn name(key: &RecordKey) -> [&str; 2] {
    [key.scope().as_str(), key.key().as_str()]
}

/// A record as the file has it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StoredRecord {
    pub(super) record: Record,
    pub(super) row: i64,
}

/// Which steps of a record are read.
#[derive(Clone, Copy)]
pub(super) enum Steps {
    All,
    /// The step at this position, or none. The other steps are blank: steps may be large, and all other
    /// operations on the file would wait while the writer reads them.
    Only(Option<u32>),
}

/// Why a record could not be read.
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

/// Separates the two causes of a [`RowError`]. The outer error is an error of SQLite. The inner error says
/// that the record of this key is unreadable.
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

/// The record of a key, expired or not.
pub(super) fn find(connection: &Connection, key: &RecordKey, steps: Steps) -> Result<Option<StoredRecord>> {
    let mut statement = connection.prepare_cached(&FIND)?;
    let mut rows = statement.query(name(key))?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let (mut record, count) = read(row)?;
    let row = row.get(NUMBER_OF_COLUMNS)?;
    match steps {
        _ if count == 0 => {}
        Steps::Only(position) if count <= MOST_BLANKS => {
            let blank = RecordedStep::new(String::new(), None, StoredResult::Value(Bytes::new()));
            record.steps = vec![blank; count];
            if let Some(position) = position
                && let Some(step) = usize::try_from(position).ok().and_then(|at| record.steps.get_mut(at))
            {
                let [scope, name] = name(key);
                let mut statement = connection.prepare_cached(FIND_STEP)?;
                let mut rows = statement.query(params![scope, name, position])?;
                *step = read_step(rows.next()?.ok_or(Unreadable("steps"))?)?;
            }
        }
        _ => {
            // The first statement is still open, so both read the same snapshot.
            let mut statement = connection.prepare_cached(FIND_STEPS)?;
            let mut rows = statement.query(name(key))?;
            while let Some(row) = rows.next()? {
                record.steps.push(read_step(row)?);
            }
            if record.steps.len() != count {
                return Err(Unreadable("steps").into());
            }
        }
    }
    Ok(Some(StoredRecord { record, row }))
}

/// The part of a key's record that a claim needs. If the record has a result, only some columns are read,
/// because most repeated calls end here, and each column takes time.
pub(super) fn find_for_claim(connection: &Connection, key: &RecordKey) -> Result<Option<Record>> {
    let mut statement = connection.prepare_cached(FIND_REPLAY)?;
    let mut rows = statement.query(name(key))?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let state = word(row, 0, "state", State::from_word)?;
    let terminal = [State::Completed, State::Failed].map(|state| Some(u64::from(number_of(state))));
    if !terminal.contains(&state) {
        return Ok(find(connection, key, Steps::All)?.map(|stored| stored.record));
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

/// The value of a column, if `read` accepts it.
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

/// Reads a row that begins with [`COLUMNS`]. Returns the record without its steps, and the number of its
/// steps.
pub(super) fn read(row: &Row<'_>) -> Result<(Record, usize)> {
    let number_or_word = |index: usize| match NAMES[index] {
        "state" => word(row, index, "state", State::from_word),
        "on_crash" => word(row, index, "on_crash", OnCrash::from_word),
        "tombstone" => word(row, index, "tombstone", Tombstone::from_word),
        name => number(row, index, name),
    };
    let columns = Columns::read(number_or_word, |index| bytes(row, index, NAMES[index]))?;
    let steps = number(row, NAMES.len(), "steps")?.and_then(|steps| usize::try_from(steps).ok());
    Ok((columns.record()?, steps.ok_or(Unreadable("steps"))?))
}

/// Reads a row of [`FIND_STEPS`] or [`FIND_STEP`].
fn read_step(row: &Row<'_>) -> Result<RecordedStep> {
    let step = bytes(row, 0, "steps")?.map(Bytes::copy_from_slice);
    Ok(step.and_then(step_bytes::decode).ok_or(Unreadable("steps"))?)
}

/// Runs a statement whose parameters are the values of [`COLUMNS`], followed by `others`. Returns whether the
/// statement wrote the row.
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

/// The number as an integer of SQLite. Numbers that are too large become SQLite's largest integer; as a time
/// in microseconds, this is some 292,000 years after 1970.
fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn instant(instant: Timestamp) -> i64 {
    integer(instant.as_micros())
}
