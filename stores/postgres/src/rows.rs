//! Translates a record to the columns of a row, and back. Contains no rule of the protocol and no statement.

use std::time::Duration;

use idem_core::protocol::{Fingerprint, Record, RecordedStep, State, StoredResult, Timestamp, Verdict};
pub(super) use idem_store_kit::columns::NAMES as COLUMNS;
use idem_store_kit::columns::{self, Columns, Unreadable, Word, number_of};
use idem_store_kit::step_bytes;
use sqlx::postgres::{PgRow, Postgres};
use sqlx::{Decode, Row as _, Type};

use crate::driver::Row;

/// The longest lease or lifetime in a row, in microseconds: some 73,000 years. A time plus two such durations
/// still fits into the server's largest integer.
const LONGEST: u64 = 1 << 61;

type Result<T> = std::result::Result<T, Unreadable>;

pub(super) fn column<'r, T>(row: &'r PgRow, index: usize, name: &'static str) -> Result<T>
where
    T: Decode<'r, Postgres> + Type<Postgres>,
{
    row.try_get(index).map_err(|_| Unreadable(name))
}

/// The record in the [`COLUMNS`] that begin at `first`, without its steps.
pub(super) fn read(row: &impl Row, first: usize) -> Result<Record> {
    let number = |index: usize| optional(row, first + index, COLUMNS[index]);
    Columns::read(number, |index| Ok(row.column(first + index)))?.record()
}

pub(super) fn steps(row: &PgRow, index: usize) -> Result<Vec<RecordedStep>> {
    let steps: Option<Vec<Vec<u8>>> = column(row, index, "steps")?;
    let decode = |bytes: Vec<u8>| step_bytes::decode(bytes.into()).ok_or(Unreadable("steps"));
    steps.unwrap_or_default().into_iter().map(decode).collect()
}

/// A number that is never null, and never below zero.
pub(super) fn unsigned(row: &impl Row, index: usize, name: &'static str) -> Result<u64> {
    optional(row, index, name)?.ok_or(Unreadable(name))
}

/// The number in a `boolean` (0 or 1), `smallint` or `bigint` column; `None` for null.
pub(super) fn optional(row: &impl Row, index: usize, name: &'static str) -> Result<Option<u64>> {
    let Some(bytes) = row.column(index) else { return Ok(None) };
    let number = match *bytes {
        [byte] => i64::from(byte),
        [high, low] => i64::from(i16::from_be_bytes([high, low])),
        _ => i64::from_be_bytes(bytes.try_into().map_err(|_| Unreadable(name))?),
    };
    u64::try_from(number).map(Some).map_err(|_| Unreadable(name))
}

pub(super) fn fingerprint(print: Option<&Fingerprint>) -> Option<&[u8]> {
    print.map(|print| print.as_bytes().as_slice())
}

/// The values of a result in the columns `tombstone` and `result`.
pub(super) fn result_columns(result: Option<&StoredResult>) -> (Option<i16>, Option<&[u8]>) {
    let (tombstone, bytes) = columns::parts(result);
    (tombstone.map(word), bytes)
}

/// The number as an integer of the server. Numbers that are too large become the server's largest integer; as
/// a time in microseconds, this is some 292,000 years after 1970.
pub(super) fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn instant(instant: Timestamp) -> i64 {
    integer(instant.as_micros())
}

/// The duration in microseconds, at most [`LONGEST`].
pub(super) fn micros(duration: Duration) -> i64 {
    integer(columns::micros(duration).min(LONGEST))
}

/// The number of a word, such as a state, in a row.
pub(super) fn word(word: impl Word) -> i16 {
    i16::from(number_of(word))
}

/// The number of the state that a verdict leads to.
pub(super) fn verdict(verdict: Verdict) -> i16 {
    word(match verdict {
        Verdict::Completed => State::Completed,
        Verdict::Failed => State::Failed,
    })
}
