//! Translates a record to the columns of a row, and back. Contains no rule of the protocol.

use idem_core::protocol::{Record, RecordedStep, Timestamp};
use idem_store_kit::columns::{Columns, NAMES, Unreadable, micros, number_of, parts};
use idem_store_kit::step_bytes;
use sqlx::mysql::{MySql, MySqlRow};
use sqlx::{Decode, Row as _};

/// The columns of a record, with the number of its steps in place of its result.
pub(super) const COLUMNS: [&str; 15] = {
    let mut names = NAMES;
    names[14] = "steps";
    names
};

/// The first column that [`read`] expects in a row. It joins all columns of the record except the result,
/// because each column of an answer costs the server and the driver more than its value does. `-` means no
/// value, because an empty string is NULL in some SQL modes. The next column has the result; it is NULL if
/// the record has no result, or if the result was not read.
pub(super) const RECORD: &str = "CAST(CONVERT(CONCAT_WS(',', state, HEX(owner), fence, attempt, recovered, on_crash, \
     lease_until, retry_at, ttl, IFNULL(HEX(fingerprint), '-'), IFNULL(tombstone, '-'), created_at, IFNULL(completed_at, '-'), \
     IFNULL(expires_at, '-'), IFNULL(OCTET_LENGTH(result), '-'), steps) USING ascii) AS BINARY) r";
/// How many columns [`read`] expects.
pub(super) const WIDTH: usize = 2;

/// The server's time in microseconds at the start of the statement. The session's time zone does not matter.
pub(super) const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))";

/// As [`NOW`], but costs the server only half the time. Used for the instants in rows, because each row has
/// several. Only MariaDB is known to have microseconds in `@@timestamp`.
pub(super) const NOW_IN_ROWS: &str = "CAST(@@timestamp * 1000000 AS UNSIGNED)";

/// The distance from [`BLANK_CLOCK`] to the largest timestamp. If an instant would be later than the largest
/// timestamp, it becomes the largest timestamp.
const END: u64 = u64::MAX - BLANK_CLOCK.as_micros();

/// The clock for a decision that is made before the server's time is known. Later the statement adds the
/// server's time. No server's clock shows this time.
pub(super) const BLANK_CLOCK: Timestamp = Timestamp::from_micros(1 << 62);

type Result<T> = std::result::Result<T, Unreadable>;

#[derive(Clone, Debug)]
pub(super) struct Row {
    /// The record without its steps. Its result is empty if `is_large`.
    pub(super) record: Record,
    pub(super) steps: usize,
    /// Whether the record has a result that was not read.
    pub(super) is_large: bool,
    /// The length of the result, in bytes.
    pub(super) result_bytes: Option<u64>,
}

pub(super) fn column<'r, T: Decode<'r, MySql>>(
    row: &'r MySqlRow,
    index: usize,
    name: &'static str,
) -> Result<T> {
    // Unchecked, because server versions report different types for the same column.
    row.try_get_unchecked(index).map_err(|_| Unreadable(name))
}

/// The time in a column that every row must have.
pub(super) fn now(row: Option<&MySqlRow>, index: usize) -> Result<Timestamp> {
    column(row.ok_or(Unreadable("now"))?, index, "now").map(Timestamp::from_micros)
}

fn bytes_of<const N: usize>(digits: &[u8], name: &'static str) -> Result<[u8; N]> {
    let (mut bytes, (pairs, rest)) = ([0; N], digits.as_chunks::<2>());
    if pairs.len() != N || !rest.is_empty() {
        return Err(Unreadable(name));
    }
    let value = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        let (high, low) = value(*high).zip(value(*low)).ok_or(Unreadable(name))?;
        *byte = high << 4 | low;
    }
    Ok(bytes)
}

/// Reads a record from two columns: [`RECORD`] at the index `first`, and the result after it.
pub(super) fn read(row: &MySqlRow, first: usize) -> Result<Row> {
    let words: Vec<&[u8]> = column::<&[u8]>(row, first, "state")?.split(|byte| *byte == b',').collect();
    let value = column::<Option<&[u8]>>(row, first + 1, "result")?;
    let word = |index: usize, name| match words.get(index) {
        None | Some(&b"") => Err(Unreadable(name)),
        Some(&word) => Ok(Some(word).filter(|word| *word != b"-")),
    };
    let number = |index, name| {
        let parse = |word| str::from_utf8(word).ok()?.parse().ok();
        word(index, name)?.map(|word| parse(word).ok_or(Unreadable(name))).transpose()
    };
    let owner = word(1, "owner")?.map(|digits| bytes_of::<16>(digits, "owner")).transpose()?;
    let print = word(9, "fingerprint")?.map(|digits| bytes_of::<32>(digits, "fingerprint")).transpose()?;
    let (result_bytes, steps) = (number(14, "result")?, number(15, "steps")?);
    let bytes = |index| match index {
        1 => Ok(owner.as_ref().map(|owner| &owner[..])),
        9 => Ok(print.as_ref().map(|print| &print[..])),
        _ => Ok(result_bytes.map(|_| value.unwrap_or_default())),
    };
    let record = Columns::read(|index| number(index, NAMES[index]), bytes)?.record()?;
    let steps = steps.and_then(|steps| usize::try_from(steps).ok()).ok_or(Unreadable("steps"))?;
    let is_large = result_bytes.is_some_and(|length| length > 0) && value.is_none();
    Ok(Row { record, steps, is_large, result_bytes })
}

pub(super) fn step(row: &MySqlRow, index: usize) -> Result<RecordedStep> {
    let bytes = column::<Vec<u8>>(row, index, "step")?;
    step_bytes::decode(bytes.into()).ok_or(Unreadable("step"))
}

/// A value of a record in a statement.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value<'v> {
    Null,
    Number(u64),
    Bytes(&'v [u8]),
    /// The server's time plus this number of microseconds.
    Later(u64),
}

impl Value<'_> {
    /// An instant that is written unchanged.
    pub(super) const fn instant(instant: Timestamp) -> Self {
        Self::Number(instant.as_micros())
    }
}

/// The value of an instant in a record that was decided with [`BLANK_CLOCK`]. If the instant is relative to
/// that clock, the server adds its own time.
pub(super) const fn on_the_server<'v>(instant: Timestamp) -> Value<'v> {
    match instant.as_micros().checked_sub(BLANK_CLOCK.as_micros()) {
        // The instant is not relative to the clock, or is the largest timestamp.
        None | Some(END) => Value::instant(instant),
        Some(later) => Value::Later(later),
    }
}

/// The values of a record, in the order of [`COLUMNS`]. `instant` converts the record's instants.
pub(super) fn values_by<'r>(
    record: &'r Record,
    instant: impl Fn(Timestamp) -> Value<'r>,
) -> [Value<'r>; COLUMNS.len()] {
    let word = |number: u8| Value::Number(number.into());
    let optional = |end: Option<Timestamp>| end.map_or(Value::Null, &instant);
    let (tombstone, _) = parts(record.result.as_ref());
    let tombstone = tombstone.map_or(Value::Null, |reason| word(number_of(reason)));
    [
        word(number_of(record.state)),
        Value::Bytes(record.owner.as_bytes()),
        // A new fence is the time; see `protocol::claim`.
        instant(Timestamp::from_micros(record.fence.get())),
        Value::Number(record.attempt.into()),
        Value::Number(record.recovered.into()),
        word(number_of(record.on_crash)),
        instant(record.lease_until),
        instant(record.retry_at),
        Value::Number(micros(record.ttl)),
        record.fingerprint.as_ref().map_or(Value::Null, |print| Value::Bytes(print.as_bytes())),
        tombstone,
        instant(record.created_at),
        optional(record.completed_at),
        optional(record.expires_at),
        Value::Number(record.steps.len() as u64),
    ]
}

/// The time when a purge reads the record. For a new record, this is its earliest possible end. Renewals and
/// usual completions leave the stored time unchanged, so they write no index.
pub(super) fn purge_at(record: &Record) -> Timestamp {
    let earliest = record.created_at.after(record.ttl);
    match record.expires_at {
        Some(end) if record.completed_at.is_some() => end,
        Some(end) => end.min(earliest),
        None => earliest,
    }
}

pub(super) fn result_of(record: &Record) -> Value<'_> {
    parts(record.result.as_ref()).1.map_or(Value::Null, Value::Bytes)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_instant_of_the_blank_clock_is_the_servers_time_and_the_rest_and_the_end_of_time_stays() {
        let later = |time| on_the_server(BLANK_CLOCK.after(time));
        assert_eq!(later(Duration::ZERO), Value::Later(0));
        assert_eq!(later(Duration::from_secs(1)), Value::Later(1_000_000));
        assert_eq!(later(Duration::MAX), Value::Number(u64::MAX));
        assert_eq!(on_the_server(Timestamp::from_micros(7)), Value::Number(7));
    }
}
