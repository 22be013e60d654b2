//! A record as a row, and back. There are no rules and no SQL statements here.

use std::time::Duration;

use bytes::Bytes;
use rusqlite::types::ValueRef;
use rusqlite::{Row, Statement, ToSql, params};

use idem_core::RecordKey;
use idem_core::protocol::{
    Fence, Fingerprint, OnCrash, Owner, Record, RecordedStep, State, StoredResult, Timestamp, Tombstone,
};

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
    /// This column has an invalid value.
    Unreadable(&'static str),
}

impl From<rusqlite::Error> for RowError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

type Result<T> = std::result::Result<T, RowError>;

/// One column of a row.
struct Column<'r> {
    name: &'static str,
    value: ValueRef<'r>,
}

impl<'r> Column<'r> {
    fn of(row: &'r Row<'_>, index: usize, name: &'static str) -> Result<Self> {
        Ok(Self { name, value: row.get_ref(index)? })
    }

    const fn unreadable(&self) -> RowError {
        RowError::Unreadable(self.name)
    }

    fn number(&self) -> Result<u64> {
        self.optional_number()?.ok_or(self.unreadable())
    }

    fn optional_number(&self) -> Result<Option<u64>> {
        match self.value {
            ValueRef::Null => Ok(None),
            ValueRef::Integer(number) => u64::try_from(number).map(Some).map_err(|_| self.unreadable()),
            _ => Err(self.unreadable()),
        }
    }

    fn instant(&self) -> Result<Timestamp> {
        self.number().map(Timestamp::from_micros)
    }

    fn optional_instant(&self) -> Result<Option<Timestamp>> {
        Ok(self.optional_number()?.map(Timestamp::from_micros))
    }

    fn bytes(&self) -> Result<Option<&'r [u8]>> {
        match self.value {
            ValueRef::Null => Ok(None),
            ValueRef::Blob(bytes) => Ok(Some(bytes)),
            _ => Err(self.unreadable()),
        }
    }

    fn array<const N: usize>(&self) -> Result<Option<[u8; N]>> {
        self.bytes()?.map(|bytes| <[u8; N]>::try_from(bytes).map_err(|_| self.unreadable())).transpose()
    }

    fn word<T>(&self, meaning: impl FnOnce(&str) -> Option<T>) -> Result<T> {
        self.value.as_str().ok().and_then(meaning).ok_or(self.unreadable())
    }
}

/// The record, without its steps, in a row that begins with [`COLUMNS`], and the number of its steps.
pub(super) fn read(row: &Row<'_>) -> Result<(Record, u64)> {
    let column = |index, name| Column::of(row, index, name);
    let state = column(0, "state")?.word(State::from_word)?;
    let owner = column(1, "owner")?;
    let attempt = column(3, "attempt")?;
    let recovered = column(4, "recovered")?;
    let completed_at = column(12, "completed_at")?.optional_instant()?;
    let result = result(&column(10, "tombstone")?, &column(15, "result")?)?;
    let terminal = matches!(state, State::Completed | State::Failed);
    if result.is_some() != terminal || completed_at.is_some() != terminal {
        return Err(RowError::Unreadable("result"));
    }
    let steps = column(14, "steps")?.number()?;
    let record = Record::new(
        state,
        Owner::from_bytes(owner.array()?.ok_or(owner.unreadable())?),
        Fence::new(column(2, "fence")?.number()?),
    )
    .with_attempt(u32::try_from(attempt.number()?).map_err(|_| attempt.unreadable())?)
    .with_recovered(match recovered.number()? {
        0 => false,
        1 => true,
        _ => return Err(recovered.unreadable()),
    })
    .with_on_crash(column(5, "on_crash")?.word(OnCrash::from_word)?)
    .with_lease_until(column(6, "lease_until")?.instant()?)
    .with_retry_at(column(7, "retry_at")?.instant()?)
    .with_ttl(Duration::from_micros(column(8, "ttl")?.number()?))
    .with_fingerprint(column(9, "fingerprint")?.array()?.map(Fingerprint::from_bytes))
    .with_result(result)
    .with_steps(Vec::new())
    .with_created_at(column(11, "created_at")?.instant()?)
    .with_completed_at(completed_at)
    .with_expires_at(column(13, "expires_at")?.optional_instant()?);
    Ok((record, steps))
}

/// The record in a row of [`REPLAY_COLUMNS`], if it has a result. The other columns are left out, because no claim on
/// such a record needs them: most repeated calls end here, and each column takes time.
pub(super) fn read_replay(row: &Row<'_>) -> Result<Option<Record>> {
    let column = |index, name| Column::of(row, index, name);
    let state = column(0, "state")?.word(State::from_word)?;
    if !matches!(state, State::Completed | State::Failed) {
        return Ok(None);
    }
    let attempt = column(1, "attempt")?;
    let result = result(&column(3, "tombstone")?, &column(6, "result")?)?;
    Ok(Some(
        Record::new(state, Owner::NOBODY, Fence::default())
            .with_attempt(u32::try_from(attempt.number()?).map_err(|_| attempt.unreadable())?)
            .with_recovered(false)
            .with_on_crash(OnCrash::Rerun)
            .with_lease_until(Timestamp::default())
            .with_retry_at(Timestamp::default())
            .with_ttl(Duration::ZERO)
            .with_fingerprint(column(2, "fingerprint")?.array()?.map(Fingerprint::from_bytes))
            .with_result(Some(result.ok_or(RowError::Unreadable("result"))?))
            .with_steps(Vec::new())
            .with_created_at(Timestamp::default())
            .with_completed_at(Some(column(4, "completed_at")?.instant()?))
            .with_expires_at(column(5, "expires_at")?.optional_instant()?),
    ))
}

/// The step in a row of [`STEP_COLUMNS`].
pub(super) fn read_step(row: &Row<'_>) -> Result<RecordedStep> {
    let column = |index, name| Column::of(row, index, name);
    let name = column(0, "name of a step")?;
    let bytes = column(3, "result of a step")?;
    let result = result(&column(2, "tombstone of a step")?, &bytes)?;
    Ok(RecordedStep::new(
        name.word(|name| Some(name.to_owned()))?,
        column(1, "input of a step")?.array()?.map(Fingerprint::from_bytes),
        result.ok_or(bytes.unreadable())?,
    ))
}

fn result(tombstone: &Column<'_>, bytes: &Column<'_>) -> Result<Option<StoredResult>> {
    match (tombstone.value, bytes.bytes()?) {
        (ValueRef::Null, None) => Ok(None),
        (ValueRef::Null, Some(bytes)) => Ok(Some(StoredResult::Value(Bytes::copy_from_slice(bytes)))),
        (_, None) => Ok(Some(StoredResult::Tombstone(tombstone.word(Tombstone::from_word)?))),
        (_, Some(_)) => Err(tombstone.unreadable()),
    }
}

/// Runs a statement whose parameters are [`COLUMNS`], scope and key, and returns whether it wrote the row.
pub(super) fn insert(
    statement: &mut Statement<'_>,
    key: &RecordKey,
    record: &Record,
) -> rusqlite::Result<bool> {
    bind(statement, record)?;
    statement.raw_bind_parameter(NUMBER_OF_COLUMNS + 1, key.scope().as_str())?;
    statement.raw_bind_parameter(NUMBER_OF_COLUMNS + 2, key.key().as_str())?;
    Ok(statement.raw_execute()? > 0)
}

/// Runs a statement whose parameters are [`COLUMNS`] and a rowid, and returns whether it wrote the row.
pub(super) fn update(statement: &mut Statement<'_>, row: i64, record: &Record) -> rusqlite::Result<bool> {
    bind(statement, record)?;
    statement.raw_bind_parameter(NUMBER_OF_COLUMNS + 1, row)?;
    Ok(statement.raw_execute()? > 0)
}

/// Binds [`COLUMNS`] to the first parameters of a statement.
fn bind(statement: &mut Statement<'_>, record: &Record) -> rusqlite::Result<()> {
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
        &micros(record.ttl),
        &record.fingerprint.as_ref().map(Fingerprint::as_bytes),
        &tombstone,
        &instant(record.created_at),
        &record.completed_at.map(instant),
        &record.expires_at.map(instant),
        &number_of_steps(record.steps.len()),
        &result,
    ];
    for (index, column) in columns.into_iter().enumerate() {
        statement.raw_bind_parameter(index + 1, column)?;
    }
    Ok(())
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
    match result {
        None => (None, None),
        Some(StoredResult::Value(bytes)) => (None, Some(bytes.as_ref())),
        Some(StoredResult::Tombstone(reason)) => (Some(reason.as_str()), None),
    }
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

/// Microseconds, rounded up as in [`Timestamp::after`].
fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(i64::MAX)
}
