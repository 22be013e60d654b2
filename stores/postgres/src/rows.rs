//! Translates a record to the columns of a row, and back. Contains no rule of the protocol and no statement.

use std::time::Duration;

use bytes::Bytes;
use sqlx::postgres::{PgRow, Postgres};
use sqlx::{Decode, Row as _, Type};

use crate::db::failure::Failure;
use crate::driver::Row;
use idem_core::protocol::{
    Fence, Fingerprint, OnCrash, Owner, Record, RecordedStep, State, StoredResult, Timestamp, Tombstone,
    Verdict,
};
use idem_core::{RecordKey, StoreError};
use idem_store_kit::step_bytes;

/// The columns of a record but for its steps, in the order [`read`] expects.
pub(super) const COLUMNS: [&str; 15] = [
    "state",
    "owner",
    "fence",
    "attempt",
    "recovered",
    "on_crash",
    "lease_until",
    "retry_at",
    "ttl",
    "fingerprint",
    "tombstone",
    "created_at",
    "completed_at",
    "expires_at",
    "result",
];

/// The longest lease or lifetime in a row, in microseconds: some 73,000 years. A time plus two of them still fits into the server's
/// largest integer.
const LONGEST: u64 = 1 << 61;

/// A row that is not a valid record, by the name of the wrong column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Unreadable(pub(super) &'static str);

impl Unreadable {
    /// The error for the record of this key.
    pub(super) fn error(self, key: &RecordKey) -> StoreError {
        StoreError::corrupt_record(format!(
            "column {} of the record of {} (key digest {}); look at it with psql, and correct or forget it",
            self.0,
            key.scope(),
            key.digest()
        ))
    }

    /// The error for a row that belongs to no single key.
    pub(super) fn failure(self) -> Failure {
        let Self(column) = self;
        Failure::Refused(StoreError::corrupt_record(format!("the server returned no valid column {column}")))
    }
}

type Result<T> = std::result::Result<T, Unreadable>;

/// A column of a row.
pub(super) fn column<'r, T>(row: &'r PgRow, index: usize, name: &'static str) -> Result<T>
where
    T: Decode<'r, Postgres> + Type<Postgres>,
{
    row.try_get(index).map_err(|_| Unreadable(name))
}

/// The record in the [`COLUMNS`] that begin at `first`, without its steps.
pub(super) fn read(row: &impl Row, first: usize) -> Result<Record> {
    let number = |index: usize| unsigned(row, first + index, COLUMNS[index]);
    let optional = |index: usize| optional(row, first + index, COLUMNS[index]);
    let word = |index: usize| small(row, first + index, COLUMNS[index]);
    let bytes = |index: usize| row.column(first + index);
    let state = state_of(word(0)?.ok_or(Unreadable(COLUMNS[0]))?)?;
    let completed_at = optional(12)?.map(Timestamp::from_micros);
    let result = result(word(10)?, bytes(14))?;
    let terminal = matches!(state, State::Completed | State::Failed);
    if result.is_some() != terminal || completed_at.is_some() != terminal {
        return Err(Unreadable("result"));
    }
    Ok(Record::new(
        state,
        Owner::from_bytes(array(bytes(1), COLUMNS[1])?.ok_or(Unreadable(COLUMNS[1]))?),
        Fence::new(number(2)?),
    )
    .with_attempt(u32::try_from(number(3)?).map_err(|_| Unreadable(COLUMNS[3]))?)
    .with_recovered(boolean(row, first + 4, COLUMNS[4])?.ok_or(Unreadable(COLUMNS[4]))?)
    .with_on_crash(on_crash_of(word(5)?.ok_or(Unreadable(COLUMNS[5]))?)?)
    .with_lease_until(Timestamp::from_micros(number(6)?))
    .with_retry_at(Timestamp::from_micros(number(7)?))
    .with_ttl(Duration::from_micros(number(8)?))
    .with_fingerprint(array(bytes(9), COLUMNS[9])?.map(Fingerprint::from_bytes))
    .with_result(result)
    .with_steps(Vec::new())
    .with_created_at(Timestamp::from_micros(number(11)?))
    .with_completed_at(completed_at)
    .with_expires_at(optional(13)?.map(Timestamp::from_micros)))
}

/// The steps in a column of them.
pub(super) fn steps(row: &PgRow, index: usize) -> Result<Vec<RecordedStep>> {
    let steps: Option<Vec<Vec<u8>>> = column(row, index, "steps")?;
    let decode = |bytes: Vec<u8>| step_bytes::decode(bytes.into()).ok_or(Unreadable("steps"));
    steps.unwrap_or_default().into_iter().map(decode).collect()
}

/// A number that is never below zero.
pub(super) fn unsigned(row: &impl Row, index: usize, name: &'static str) -> Result<u64> {
    optional(row, index, name)?.ok_or(Unreadable(name))
}

fn optional(row: &impl Row, index: usize, name: &'static str) -> Result<Option<u64>> {
    let number: Option<[u8; 8]> = array(row.column(index), name)?;
    number
        .map(i64::from_be_bytes)
        .map(|number| u64::try_from(number).map_err(|_| Unreadable(name)))
        .transpose()
}

fn small(row: &impl Row, index: usize, name: &'static str) -> Result<Option<i16>> {
    Ok(array(row.column(index), name)?.map(i16::from_be_bytes))
}

pub(super) fn boolean(row: &impl Row, index: usize, name: &'static str) -> Result<Option<bool>> {
    Ok(array(row.column(index), name)?.map(|[byte]| byte != 0))
}

fn array<const N: usize>(bytes: Option<&[u8]>, name: &'static str) -> Result<Option<[u8; N]>> {
    bytes.map(|bytes| <[u8; N]>::try_from(bytes).map_err(|_| Unreadable(name))).transpose()
}

fn result(tombstone: Option<i16>, bytes: Option<&[u8]>) -> Result<Option<StoredResult>> {
    match (tombstone, bytes) {
        (None, None) => Ok(None),
        (None, Some(bytes)) => Ok(Some(StoredResult::Value(Bytes::copy_from_slice(bytes)))),
        (Some(word), None) => Ok(Some(StoredResult::Tombstone(tombstone_of(word)?))),
        (Some(_), Some(_)) => Err(Unreadable("tombstone")),
    }
}

/// The values of a result in the columns `tombstone` and `result`.
pub(super) fn result_columns(result: Option<&StoredResult>) -> (Option<i16>, Option<&[u8]>) {
    match result {
        None => (None, None),
        Some(StoredResult::Value(bytes)) => (None, Some(bytes.as_ref())),
        Some(StoredResult::Tombstone(reason)) => (Some(tombstone_word(*reason)), None),
    }
}

/// The nearest integer that the server has. Its largest one stands for all times beyond, some 292,000 years from now.
pub(super) fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn instant(instant: Timestamp) -> i64 {
    integer(instant.as_micros())
}

/// Rounded up, as [`Timestamp::after`] does it.
pub(super) fn micros(duration: Duration) -> i64 {
    let micros = u64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX);
    integer(micros.min(LONGEST))
}

/// The number for a word that this version does not know. No version reads a row with it, so none takes it for another word.
const OF_A_LATER_VERSION: i16 = i16::MAX;

pub(super) const fn state_word(state: State) -> i16 {
    match state {
        State::InFlight => 0,
        State::Completed => 1,
        State::Failed => 2,
        State::Released => 3,
        State::InDoubt => 4,
        _ => OF_A_LATER_VERSION,
    }
}

pub(super) const fn verdict_word(verdict: Verdict) -> i16 {
    match verdict {
        Verdict::Completed => state_word(State::Completed),
        Verdict::Failed => state_word(State::Failed),
    }
}

const fn state_of(word: i16) -> Result<State> {
    Ok(match word {
        0 => State::InFlight,
        1 => State::Completed,
        2 => State::Failed,
        3 => State::Released,
        4 => State::InDoubt,
        _ => return Err(Unreadable("state")),
    })
}

pub(super) const fn on_crash_word(policy: OnCrash) -> i16 {
    match policy {
        OnCrash::Rerun => 0,
        OnCrash::InDoubt => 1,
        _ => OF_A_LATER_VERSION,
    }
}

const fn on_crash_of(word: i16) -> Result<OnCrash> {
    Ok(match word {
        0 => OnCrash::Rerun,
        1 => OnCrash::InDoubt,
        _ => return Err(Unreadable("on_crash")),
    })
}

const fn tombstone_word(reason: Tombstone) -> i16 {
    match reason {
        Tombstone::TooLarge => 0,
        Tombstone::NotEncodable => 1,
        Tombstone::Exhausted => 2,
        _ => OF_A_LATER_VERSION,
    }
}

const fn tombstone_of(word: i16) -> Result<Tombstone> {
    Ok(match word {
        0 => Tombstone::TooLarge,
        1 => Tombstone::NotEncodable,
        2 => Tombstone::Exhausted,
        _ => return Err(Unreadable("tombstone")),
    })
}
