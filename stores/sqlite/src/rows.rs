//! A record as a row, and back. There are no rules and no SQL statements here.

use rusqlite::types::ValueRef;
use rusqlite::{Row, Statement, ToSql, params, params_from_iter};

use idem_core::protocol::{
    Fingerprint, OnCrash, Owner, Record, RecordedStep, State, StoredResult, Timestamp, Tombstone,
};
use idem_core::{RecordKey, StoreError};
use idem_store_kit::columns::{Columns, Unreadable, Word, array, micros, number_of, parts, stored};

/// The columns of a record in the order that [`read`] expects. The result is last, so that SQLite finds the others
/// without reading through it.
pub(super) const COLUMNS: &str = "state, owner, fence, attempt, recovered, on_crash, lease_until, retry_at, \
     ttl, fingerprint, tombstone, created_at, completed_at, expires_at, steps, result";

/// The number of these columns.
pub(super) const NUMBER_OF_COLUMNS: usize = 16;

/// The columns that a claim needs from a record with a result, in the order that [`read_replay`] expects.
pub(super) const REPLAY_COLUMNS: &str =
    "state, attempt, fingerprint, tombstone, completed_at, expires_at, result";

/// The columns of a step, in the order that [`read_step`] expects.
pub(super) const STEP_COLUMNS: &str = "name, input, tombstone, result";

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

/// One column of a row.
struct Column<'r> {
    name: &'static str,
    value: ValueRef<'r>,
}

impl<'r> Column<'r> {
    fn of(row: &'r Row<'_>, index: usize, name: &'static str) -> Result<Self> {
        Ok(Self { name, value: row.get_ref(index)? })
    }

    fn valid<T>(&self, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| Unreadable(self.name).into())
    }

    fn number(&self) -> Result<Option<u64>> {
        let number = self.value.as_i64_or_null().ok();
        self.valid(number.and_then(|number| number.map(u64::try_from).transpose().ok()))
    }

    fn bytes(&self) -> Result<Option<&'r [u8]>> {
        self.valid(self.value.as_blob_or_null().ok())
    }

    fn text(&self) -> Result<&'r str> {
        self.valid(self.value.as_str().ok())
    }

    /// The number of a word.
    fn word<W: Word>(&self, meaning: impl FnOnce(&str) -> Option<W>) -> Result<Option<u64>> {
        let Some(text) = self.valid(self.value.as_str_or_null().ok())? else { return Ok(None) };
        self.valid(meaning(text).map(|word| Some(number_of(word).into())))
    }
}

/// The record, without its steps, in a row that begins with [`COLUMNS`], and the number of its steps.
pub(super) fn read(row: &Row<'_>) -> Result<(Record, u64)> {
    let column = |index, name| Column::of(row, index, name);
    let columns = Columns {
        state: column(0, "state")?.word(State::from_word)?,
        owner: column(1, "owner")?.bytes()?,
        fence: column(2, "fence")?.number()?,
        attempt: column(3, "attempt")?.number()?,
        recovered: column(4, "recovered")?.number()?,
        on_crash: column(5, "on_crash")?.word(OnCrash::from_word)?,
        lease_until: column(6, "lease_until")?.number()?,
        retry_at: column(7, "retry_at")?.number()?,
        ttl: column(8, "ttl")?.number()?,
        fingerprint: column(9, "fingerprint")?.bytes()?,
        tombstone: column(10, "tombstone")?.word(Tombstone::from_word)?,
        created_at: column(11, "created_at")?.number()?,
        completed_at: column(12, "completed_at")?.number()?,
        expires_at: column(13, "expires_at")?.number()?,
        result: column(15, "result")?.bytes()?,
    };
    let steps = column(14, "steps")?.number()?.ok_or(Unreadable("steps"))?;
    Ok((columns.record()?, steps))
}

/// The record in a row of [`REPLAY_COLUMNS`], if it has a result. The other columns are left out, because no claim on
/// such a record needs them: most repeated calls end here, and each column takes time.
pub(super) fn read_replay(row: &Row<'_>) -> Result<Option<Record>> {
    let column = |index, name| Column::of(row, index, name);
    let state = column(0, "state")?;
    if !matches!(State::from_word(state.text()?), Some(State::Completed | State::Failed)) {
        return Ok(None);
    }
    let columns = Columns {
        state: state.word(State::from_word)?,
        attempt: column(1, "attempt")?.number()?,
        fingerprint: column(2, "fingerprint")?.bytes()?,
        tombstone: column(3, "tombstone")?.word(Tombstone::from_word)?,
        completed_at: column(4, "completed_at")?.number()?,
        expires_at: column(5, "expires_at")?.number()?,
        result: column(6, "result")?.bytes()?,
        owner: Some(Owner::NOBODY.as_bytes()),
        ..Columns::BLANK
    };
    Ok(Some(columns.record()?))
}

/// The step in a row of [`STEP_COLUMNS`].
pub(super) fn read_step(row: &Row<'_>) -> Result<RecordedStep> {
    let column = |index, name| Column::of(row, index, name);
    let input = column(1, "input of a step")?.bytes()?.map(|input| array(input, "input of a step"));
    let tombstone = column(2, "tombstone of a step")?.word(Tombstone::from_word)?;
    let result = stored(tombstone, column(3, "result of a step")?.bytes()?)?;
    Ok(RecordedStep::new(
        column(0, "name of a step")?.text()?.to_owned(),
        input.transpose()?.map(Fingerprint::from_bytes),
        result.ok_or(Unreadable("result of a step"))?,
    ))
}

/// Runs a statement whose parameters are [`COLUMNS`] and these others, and returns whether it wrote the row.
pub(super) fn write(
    statement: &mut Statement<'_>,
    record: &Record,
    others: &[&dyn ToSql],
) -> rusqlite::Result<bool> {
    let (tombstone, result) = result_columns(record.result.as_ref());
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
        &tombstone,
        &instant(record.created_at),
        &record.completed_at.map(instant),
        &record.expires_at.map(instant),
        &number_of_steps(record.steps.len()),
        &result,
    ];
    Ok(statement.execute(params_from_iter(columns.iter().chain(others)))? > 0)
}

/// Runs a statement whose parameters are scope, key, position and then [`STEP_COLUMNS`].
pub(super) fn write_step(
    statement: &mut Statement<'_>,
    key: &RecordKey,
    position: usize,
    step: &RecordedStep,
) -> rusqlite::Result<()> {
    let (tombstone, result) = result_columns(Some(&step.result));
    let parameters = params![
        key.scope().as_str(),
        key.key().as_str(),
        number_of_steps(position),
        step.name,
        step.input.as_ref().map(Fingerprint::as_bytes),
        tombstone,
        result,
    ];
    statement.execute(parameters).map(drop)
}

/// The values of the columns `tombstone` and `result` for a result.
fn result_columns(result: Option<&StoredResult>) -> (Option<&'static str>, Option<&[u8]>) {
    let (tombstone, bytes) = parts(result);
    (tombstone.map(|reason| reason.as_str()), bytes)
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
