//! A record as the columns of a row, and back. Contains no rule of the protocol.

use std::time::Duration;

use bytes::Bytes;
use idem_core::protocol::{
    Fence, Fingerprint, OnCrash, Owner, Record, State, StoredResult, Timestamp, Tombstone,
};
use idem_core::{RecordKey, StoreError};

use crate::group_commit::Failure;

/// The name of the wrong column, in a row that is not a valid record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable(pub &'static str);

impl Unreadable {
    /// The error for the record of this key.
    #[must_use]
    pub fn error(self, key: &RecordKey) -> StoreError {
        StoreError::corrupt_record(format!(
            "column {} of the record of {} (key digest {}); look at it with a client of its database, and \
             correct or forget it",
            self.0,
            key.scope(),
            key.digest()
        ))
    }
}

/// The error for a row whose key is not known here.
impl From<Unreadable> for Failure {
    fn from(Unreadable(column): Unreadable) -> Self {
        Self::Refused(StoreError::corrupt_record(format!("the server returned no valid column {column}")))
    }
}

type Result<T> = std::result::Result<T, Unreadable>;

/// A word, such as a state, that a column stores as a number.
pub trait Word: Copy + PartialEq + 'static {
    /// The name of the column.
    const COLUMN: &'static str;
    /// The words, in the order of their numbers. Stored records contain these numbers, so the order must not
    /// change.
    const ALL: &'static [Self];
}

impl Word for State {
    const COLUMN: &'static str = "state";
    const ALL: &'static [Self] =
        &[Self::InFlight, Self::Completed, Self::Failed, Self::Released, Self::InDoubt];
}

impl Word for OnCrash {
    const COLUMN: &'static str = "on_crash";
    const ALL: &'static [Self] = &[Self::Rerun, Self::InDoubt];
}

impl Word for Tombstone {
    const COLUMN: &'static str = "tombstone";
    const ALL: &'static [Self] = &[Self::TooLarge, Self::NotEncodable, Self::Exhausted];
}

impl Word for bool {
    const COLUMN: &'static str = "recovered";
    const ALL: &'static [Self] = &[false, true];
}

/// The word of this number.
///
/// # Errors
///
/// The name of the column, if this version knows no such word.
pub fn word<W: Word>(number: u64) -> Result<W> {
    let word = usize::try_from(number).ok().and_then(|number| W::ALL.get(number));
    word.copied().ok_or(Unreadable(W::COLUMN))
}

/// The number of a word. An unknown word becomes a number that no version reads, so that no version takes it
/// for another word.
pub fn number_of<W: Word>(word: W) -> u8 {
    let number = W::ALL.iter().position(|known| *known == word);
    number.and_then(|number| u8::try_from(number).ok()).unwrap_or(u8::MAX)
}

/// A duration in microseconds, rounded up as [`Timestamp::after`] does it.
#[must_use]
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX)
}

/// The values of a record's columns, except its steps.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "they are the record's fields")]
pub struct Columns<'r> {
    pub state: Option<u64>,
    pub owner: Option<&'r [u8]>,
    pub fence: Option<u64>,
    pub attempt: Option<u64>,
    pub recovered: Option<u64>,
    pub on_crash: Option<u64>,
    pub lease_until: Option<u64>,
    pub retry_at: Option<u64>,
    pub ttl: Option<u64>,
    pub fingerprint: Option<&'r [u8]>,
    pub tombstone: Option<u64>,
    pub created_at: Option<u64>,
    pub completed_at: Option<u64>,
    pub expires_at: Option<u64>,
    pub result: Option<&'r [u8]>,
}

fn needed<T>(value: Option<T>, column: &'static str) -> Result<T> {
    value.ok_or(Unreadable(column))
}

/// The bytes of a column that must have exactly `N` bytes.
///
/// # Errors
///
/// The name of the column, if it has another number of bytes.
pub fn array<const N: usize>(bytes: &[u8], column: &'static str) -> Result<[u8; N]> {
    bytes.try_into().map_err(|_| Unreadable(column))
}

/// The names of a record's columns, except its steps. [`Columns::read`] requests each column by its index in
/// this array.
pub const NAMES: [&str; 15] = [
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

impl<'r> Columns<'r> {
    /// Reads each column by its index in [`NAMES`], with the function for its type.
    ///
    /// # Errors
    ///
    /// The first error that a function returns.
    pub fn read<E>(
        number: impl Fn(usize) -> std::result::Result<Option<u64>, E>,
        bytes: impl Fn(usize) -> std::result::Result<Option<&'r [u8]>, E>,
    ) -> std::result::Result<Self, E> {
        Ok(Self {
            state: number(0)?,
            owner: bytes(1)?,
            fence: number(2)?,
            attempt: number(3)?,
            recovered: number(4)?,
            on_crash: number(5)?,
            lease_until: number(6)?,
            retry_at: number(7)?,
            ttl: number(8)?,
            fingerprint: bytes(9)?,
            tombstone: number(10)?,
            created_at: number(11)?,
            completed_at: number(12)?,
            expires_at: number(13)?,
            result: bytes(14)?,
        })
    }
}

impl Columns<'_> {
    /// The columns of an empty record, with zero in each column that must have a number.
    pub const BLANK: Self = Self {
        state: Some(0),
        owner: None,
        fence: Some(0),
        attempt: Some(0),
        recovered: Some(0),
        on_crash: Some(0),
        lease_until: Some(0),
        retry_at: Some(0),
        ttl: Some(0),
        fingerprint: None,
        tombstone: None,
        created_at: Some(0),
        completed_at: None,
        expires_at: None,
        result: None,
    };

    /// The record, without its steps.
    ///
    /// # Errors
    ///
    /// The name of the wrong column.
    pub fn record(self) -> Result<Record> {
        let word_of_state: State = word(needed(self.state, "state")?)?;
        let instant = |number, column| needed(number, column).map(Timestamp::from_micros);
        let completed_at = self.completed_at.map(Timestamp::from_micros);
        let result = stored(self.tombstone, self.result)?;
        let is_terminal = matches!(word_of_state, State::Completed | State::Failed);
        if result.is_some() != is_terminal || completed_at.is_some() != is_terminal {
            return Err(Unreadable("result"));
        }
        let owner = array(needed(self.owner, "owner")?, "owner")?;
        let fingerprint = self.fingerprint.map(|print| array(print, "fingerprint")).transpose()?;
        let attempt = u32::try_from(needed(self.attempt, "attempt")?).map_err(|_| Unreadable("attempt"))?;
        let fence = Fence::new(needed(self.fence, "fence")?);
        Ok(Record::new(word_of_state, Owner::from_bytes(owner), fence)
            .with_attempt(attempt)
            .with_recovered(word(needed(self.recovered, "recovered")?)?)
            .with_on_crash(word(needed(self.on_crash, "on_crash")?)?)
            .with_lease_until(instant(self.lease_until, "lease_until")?)
            .with_retry_at(instant(self.retry_at, "retry_at")?)
            .with_ttl(Duration::from_micros(needed(self.ttl, "ttl")?))
            .with_fingerprint(fingerprint.map(Fingerprint::from_bytes))
            .with_result(result)
            .with_steps(Vec::new())
            .with_created_at(instant(self.created_at, "created_at")?)
            .with_completed_at(completed_at)
            .with_expires_at(self.expires_at.map(Timestamp::from_micros)))
    }
}

/// The result in the columns `tombstone` and `result`.
///
/// # Errors
///
/// The name of the column `tombstone`, if both columns have a value, or if the tombstone's number is unknown.
pub fn stored(tombstone: Option<u64>, result: Option<&[u8]>) -> Result<Option<StoredResult>> {
    match (tombstone, result) {
        (None, None) => Ok(None),
        (None, Some(bytes)) => Ok(Some(StoredResult::Value(Bytes::copy_from_slice(bytes)))),
        (Some(number), None) => Ok(Some(StoredResult::Tombstone(word(number)?))),
        (Some(_), Some(_)) => Err(Unreadable("tombstone")),
    }
}

/// Splits a result into the columns `tombstone` and `result`, from which [`stored`] reads it again.
#[must_use]
pub fn parts(result: Option<&StoredResult>) -> (Option<Tombstone>, Option<&[u8]>) {
    match result {
        None => (None, None),
        Some(StoredResult::Value(bytes)) => (None, Some(bytes)),
        Some(StoredResult::Tombstone(reason)) => (Some(*reason), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed() -> Columns<'static> {
        Columns {
            state: Some(1),
            owner: Some(&[7; 16]),
            fence: Some(9),
            attempt: Some(2),
            recovered: Some(0),
            on_crash: Some(1),
            lease_until: Some(10),
            retry_at: Some(11),
            ttl: Some(12),
            fingerprint: Some(&[8; 32]),
            created_at: Some(13),
            completed_at: Some(14),
            expires_at: Some(15),
            result: Some(b"done"),
            tombstone: None,
        }
    }

    #[test]
    fn a_wrong_column_is_named() {
        let right = completed();
        for (wrong, column) in [
            (Columns { state: Some(5), ..right }, "state"),
            (Columns { state: None, ..right }, "state"),
            (Columns { owner: Some(b"short"), ..right }, "owner"),
            (Columns { fingerprint: Some(b"short"), ..right }, "fingerprint"),
            (Columns { attempt: Some(1 << 32), ..right }, "attempt"),
            (Columns { recovered: Some(2), ..right }, "recovered"),
            (Columns { on_crash: Some(2), ..right }, "on_crash"),
            (Columns { lease_until: None, ..right }, "lease_until"),
            (Columns { tombstone: Some(0), ..right }, "tombstone"),
            (Columns { tombstone: Some(3), result: None, ..right }, "tombstone"),
            (Columns { result: None, ..right }, "result"),
            (Columns { completed_at: None, ..right }, "result"),
            (Columns { state: Some(0), completed_at: None, ..right }, "result"),
        ] {
            assert_eq!(wrong.record(), Err(Unreadable(column)), "{wrong:?}");
        }
    }
}
