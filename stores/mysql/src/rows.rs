//! Translates a record to the columns of a row, and back. Contains no rule of the protocol.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use sqlx::mysql::{MySql, MySqlRow};
use sqlx::{Decode, Row as _};

use crate::db::failure::Failure;
use idem_core::protocol::{
    Fence, Fingerprint, OnCrash, Owner, Record, RecordedStep, State, StoredResult, Timestamp, Tombstone,
};
use idem_core::support::step_bytes;
use idem_core::{RecordKey, StoreError};

/// The columns of a record that [`read`] expects, in its order. After them come the length of the result, and the result
/// itself or nothing where it is not wanted.
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
    "steps",
];
pub(super) const FENCE: usize = 2;
const STEPS: usize = 14;
const LENGTH: usize = COLUMNS.len();
const RESULT: usize = LENGTH + 1;
/// How many columns [`read`] expects.
pub(super) const WIDTH: usize = RESULT + 1;

/// The server's time in microseconds at the start of the statement. The session's time zone does not matter.
pub(super) const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))";

/// How far the end of time is from [`BLANK_CLOCK`].
const END: u64 = u64::MAX - BLANK_CLOCK.as_micros();

/// The clock of a judgement that the server's clock completes. No server's clock shows this time.
pub(super) const BLANK_CLOCK: Timestamp = Timestamp::from_micros(1 << 62);

/// A row that is not a valid record, by the name of the wrong column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Unreadable(pub(super) &'static str);

impl Unreadable {
    /// The error for the record of this key.
    pub(super) fn error(self, key: &RecordKey) -> StoreError {
        StoreError::corrupt_record(format!(
            "column {} of the record of {} (key digest {}); look at it with a client of the server, and correct or \
             forget it",
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

pub(super) type Result<T> = std::result::Result<T, Unreadable>;

/// A record as it was read.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// Without its steps; its result is empty if it `is_large`.
    pub(super) record: Record,
    /// How many steps there are.
    pub(super) steps: usize,
    /// Whether there is a result that was not read.
    pub(super) is_large: bool,
    /// The length of the result, in bytes.
    pub(super) result_bytes: Option<u64>,
}

/// A column of a row.
pub(super) fn column<'r, T: Decode<'r, MySql>>(
    row: &'r MySqlRow,
    index: usize,
    name: &'static str,
) -> Result<T> {
    // Unchecked, because server versions report different types for the same column.
    row.try_get_unchecked(index).map_err(|_| Unreadable(name))
}

/// The record in the [`COLUMNS`] that begin at `first`.
pub(super) fn read(row: &MySqlRow, first: usize) -> Result<Row> {
    let number = |index: usize| column::<u64>(row, first + index, COLUMNS[index]);
    let optional = |index: usize| column::<Option<u64>>(row, first + index, COLUMNS[index]);
    let bytes = |index: usize| column::<Option<&[u8]>>(row, first + index, COLUMNS[index]);
    let state = word(number(0)?, "state", STATES)?;
    let completed_at = optional(12)?.map(Timestamp::from_micros);
    let result_bytes = column::<Option<u64>>(row, first + LENGTH, "result")?;
    let value = column::<Option<&[u8]>>(row, first + RESULT, "result")?;
    let result = result(optional(10)?, result_bytes.map(|_| value.unwrap_or_default()))?;
    let terminal = matches!(state, State::Completed | State::Failed);
    if result.is_some() != terminal || completed_at.is_some() != terminal {
        return Err(Unreadable("result"));
    }
    let record = Record::new(
        state,
        Owner::from_bytes(array(bytes(1)?, COLUMNS[1])?.ok_or(Unreadable(COLUMNS[1]))?),
        Fence::new(number(2)?),
    )
    .with_attempt(u32::try_from(number(3)?).map_err(|_| Unreadable(COLUMNS[3]))?)
    .with_recovered(word(number(4)?, COLUMNS[4], [false, true])?)
    .with_on_crash(word(number(5)?, COLUMNS[5], POLICIES)?)
    .with_lease_until(Timestamp::from_micros(number(6)?))
    .with_retry_at(Timestamp::from_micros(number(7)?))
    .with_ttl(Duration::from_micros(number(8)?))
    .with_fingerprint(array(bytes(9)?, COLUMNS[9])?.map(Fingerprint::from_bytes))
    .with_result(result)
    .with_steps(Vec::new())
    .with_created_at(Timestamp::from_micros(number(11)?))
    .with_completed_at(completed_at)
    .with_expires_at(optional(13)?.map(Timestamp::from_micros));
    let steps = usize::try_from(number(STEPS)?).map_err(|_| Unreadable("steps"))?;
    let is_large = result_bytes.is_some_and(|length| length > 0) && value.is_none();
    Ok(Row { record, steps, is_large, result_bytes })
}

/// The step in a column of one.
pub(super) fn step(row: &MySqlRow, index: usize) -> Result<RecordedStep> {
    let bytes = column::<Vec<u8>>(row, index, "step")?;
    step_bytes::decode(bytes.into()).ok_or(Unreadable("step"))
}

fn array<const N: usize>(bytes: Option<&[u8]>, name: &'static str) -> Result<Option<[u8; N]>> {
    bytes.map(|bytes| <[u8; N]>::try_from(bytes).map_err(|_| Unreadable(name))).transpose()
}

fn result(tombstone: Option<u64>, value: Option<&[u8]>) -> Result<Option<StoredResult>> {
    match (tombstone, value) {
        (None, None) => Ok(None),
        (None, Some(bytes)) => Ok(Some(StoredResult::Value(Bytes::copy_from_slice(bytes)))),
        (Some(number), None) => Ok(Some(StoredResult::Tombstone(word(number, "tombstone", TOMBSTONES)?))),
        (Some(_), Some(_)) => Err(Unreadable("tombstone")),
    }
}

/// The words of the columns, in the order of their numbers.
const STATES: [State; 5] =
    [State::InFlight, State::Completed, State::Failed, State::Released, State::InDoubt];
const POLICIES: [OnCrash; 2] = [OnCrash::Rerun, OnCrash::InDoubt];
const TOMBSTONES: [Tombstone; 3] = [Tombstone::TooLarge, Tombstone::NotEncodable, Tombstone::Exhausted];

fn word<T: Copy, const N: usize>(number: u64, name: &'static str, words: [T; N]) -> Result<T> {
    let number = usize::try_from(number).ok();
    number.and_then(|number| words.get(number)).copied().ok_or(Unreadable(name))
}

/// The number of a word. An unknown word becomes a number that no version reads, so that no version takes it for another word.
fn number_of<T: PartialEq>(word: &T, words: &[T]) -> usize {
    words.iter().position(|known| known == word).unwrap_or(usize::from(u8::MAX))
}

/// Bytes as a literal that means the same in every SQL mode and character set.
pub(super) fn hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    text.reserve(bytes.len() * 2 + 3);
    text.push_str("x'");
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text.push('\'');
}

/// A record's value for each of the [`COLUMNS`], as literals.
pub(super) fn literals(record: &Record) -> [String; COLUMNS.len()] {
    literals_by(record, |instant| instant.as_micros().to_string())
}

/// An instant of a record that was judged by [`BLANK_CLOCK`], as the server's clock makes it.
pub(super) fn on_the_server(instant: Timestamp) -> String {
    match instant.as_micros().checked_sub(BLANK_CLOCK.as_micros()) {
        // Not of the clock, or beyond the end of time.
        None | Some(END) => instant.as_micros().to_string(),
        Some(0) => NOW.to_owned(),
        Some(later) => format!("{NOW} + {later}"),
    }
}

/// As [`literals`], with instants as `instant` writes them.
pub(super) fn literals_by(record: &Record, instant: impl Fn(Timestamp) -> String) -> [String; COLUMNS.len()] {
    let number = |number: u64| number.to_string();
    let optional = |end: Option<Timestamp>| end.map_or_else(null, &instant);
    let bytes = |bytes: &[u8]| {
        let mut literal = String::new();
        hex(&mut literal, bytes);
        literal
    };
    let tombstone = match &record.result {
        Some(StoredResult::Tombstone(reason)) => number_of(reason, &TOMBSTONES).to_string(),
        _ => null(),
    };
    [
        number_of(&record.state, &STATES).to_string(),
        bytes(record.owner.as_bytes()),
        number(record.fence.get()),
        record.attempt.to_string(),
        u8::from(record.recovered).to_string(),
        number_of(&record.on_crash, &POLICIES).to_string(),
        instant(record.lease_until),
        instant(record.retry_at),
        number(micros(record.ttl)),
        record.fingerprint.as_ref().map_or_else(null, |print| bytes(print.as_bytes())),
        tombstone,
        instant(record.created_at),
        optional(record.completed_at),
        optional(record.expires_at),
        record.steps.len().to_string(),
    ]
}

/// A record's result as a literal.
pub(super) fn result_literal(text: &mut String, record: &Record) {
    match &record.result {
        Some(StoredResult::Value(value)) => hex(text, value),
        _ => text.push_str("NULL"),
    }
}

/// Adds the condition that finds a row by its key.
pub(super) fn is_key(text: &mut String, key: &RecordKey) {
    text.push_str("scope = ");
    hex(text, key.scope().as_str().as_bytes());
    text.push_str(" AND `key` = ");
    hex(text, key.key().as_str().as_bytes());
}

/// Appends formatted text, which cannot fail.
pub(super) fn add(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(arguments);
}

fn null() -> String {
    "NULL".to_owned()
}

/// Rounded up, as [`Timestamp::after`] does it.
fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_a_literal_of_digits_alone() {
        let mut text = String::new();
        hex(&mut text, b"a'\\\0\xff");
        assert_eq!(text, "x'61275c00ff'");
        text.clear();
        hex(&mut text, b"");
        assert_eq!(text, "x''");
    }

    #[test]
    fn the_words_of_a_column_lead_back_to_their_numbers() {
        for (number, state) in STATES.into_iter().enumerate() {
            assert_eq!(number_of(&state, &STATES), number);
            assert_eq!(word(number as u64, "state", STATES), Ok(state));
        }
        assert_eq!(word(5, "state", STATES), Err(Unreadable("state")));
        assert_eq!(number_of(&State::InDoubt, &STATES[..2]), 255);
    }

    #[test]
    fn an_instant_of_the_blank_clock_is_the_servers_time_and_the_rest_and_the_end_of_time_stays() {
        let later = |time| on_the_server(BLANK_CLOCK.after(time));
        assert_eq!(later(Duration::ZERO), NOW);
        assert_eq!(later(Duration::from_secs(1)), format!("{NOW} + 1000000"));
        assert_eq!(later(Duration::MAX), u64::MAX.to_string());
        assert_eq!(on_the_server(Timestamp::from_micros(7)), "7");
    }
}
