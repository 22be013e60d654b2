//! Walking through the records of a store: the request and the page.
//!
//! Owns the types of [`Store::list`](crate::Store::list). Each store decides in which order it walks.

use std::fmt;

use crate::key::{RecordKey, Scope};
use crate::protocol::setters;
use crate::protocol::{Record, State, StoredResult, Timestamp, Tombstone};

/// Upper limit of the records that one page reads.
pub const MAX_LOOKED_AT: usize = 1_000;

/// Requests one page of the records of a store.
///
/// ```
/// # use idem_core as idem;
/// use idem::listing::List;
/// use idem::protocol::State;
///
/// let in_doubt = List::default().with_states(vec![State::InDoubt]);
/// # let _ = in_doubt;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct List {
    /// Only records in one of these states; if empty, records in any state.
    pub states: Vec<State>,
    /// Only records of this scope; if `None`, records of every scope.
    pub scope: Option<Scope>,
    /// Where the previous page ended; `None` for the first page.
    pub after: Option<Cursor>,
    /// About how many records to read: 1 to [`MAX_LOOKED_AT`]; a larger number counts as that limit.
    pub limit: usize,
}

impl Default for List {
    /// The first page of all records, with a limit of 100.
    fn default() -> Self {
        Self { states: Vec::new(), scope: None, after: None, limit: 100 }
    }
}

setters! {
    List {
        with_states states: Vec<State>,
        with_scope scope: Option<Scope>,
        with_after after: Option<Cursor>,
        with_limit limit: usize,
    }
}

impl List {
    /// Whether the request includes records in this state.
    #[must_use]
    pub fn takes(&self, state: State) -> bool {
        self.states.is_empty() || self.states.contains(&state)
    }

    /// How many records to read: `limit` within its bounds.
    #[must_use]
    pub fn looked_at(&self) -> usize {
        self.limit.clamp(1, MAX_LOOKED_AT)
    }
}

/// Some of the records of a store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Page {
    /// The records that match, in an order that the store chooses.
    pub records: Vec<Listed>,
    /// The names of records that this version of idem cannot read.
    pub unreadable: Vec<RecordKey>,
    /// Where the next page begins; `None` if this page is the last.
    pub next: Option<Cursor>,
    /// The store's time when it read the page. Compare leases and expiry times with it.
    pub now: Timestamp,
}

impl Page {
    /// An empty page.
    #[must_use]
    pub const fn new(now: Timestamp) -> Self {
        Self { records: Vec::new(), unreadable: Vec::new(), next: None, now }
    }
}

/// A record without its result and its steps.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listed {
    /// The name of the record.
    pub key: RecordKey,
    /// The record. Its `result` is `None` in every state, and it has no `steps`.
    pub record: Record,
    /// The kind and size of its result; `Some` exactly in the states `Completed` and `Failed`.
    pub result: Option<ListedResult>,
}

impl Listed {
    /// The record, with its result and its steps removed.
    #[must_use]
    pub fn new(key: RecordKey, mut record: Record) -> Self {
        let result = record.result.take().as_ref().map(ListedResult::of);
        record.steps = Vec::new();
        Self { key, record, result }
    }

    /// As [`new`](Self::new), for a record that the store read with an empty value instead of the recorded
    /// value. `bytes` is the size of the recorded value.
    #[must_use]
    pub fn without_value(key: RecordKey, record: Record, bytes: Option<u64>) -> Self {
        let mut listed = Self::new(key, record);
        if let Some(ListedResult::Value { bytes: size }) = &mut listed.result {
            *size = bytes;
        }
        listed
    }
}

/// The kind and size of a result, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListedResult {
    /// A value.
    Value {
        /// Its size in bytes as stored; `None` if the store would have to read the value to know.
        bytes: Option<u64>,
    },
    /// No value, for this reason.
    Tombstone(Tombstone),
}

impl ListedResult {
    /// The kind and size of this result.
    #[must_use]
    pub fn of(result: &StoredResult) -> Self {
        match result {
            StoredResult::Value(bytes) => Self::Value { bytes: Some(bytes.len() as u64) },
            StoredResult::Tombstone(reason) => Self::Tombstone(*reason),
        }
    }
}

/// A position in a walk through the records of a store. Only the store that returned it can use it.
///
/// It may hold a key, so `Debug` shows its size only.
#[derive(Clone, PartialEq, Eq)]
pub struct Cursor(Vec<u8>);

impl Cursor {
    /// The cursor with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The position just after this key, for a store that walks in the order of scope and key.
    #[must_use]
    pub fn behind(key: &RecordKey) -> Self {
        Self::behind_name(key.scope().as_str(), key.key().as_str())
    }

    /// As [`behind`](Self::behind), for a scope and a key that need not be valid.
    #[must_use]
    pub fn behind_name(scope: &str, key: &str) -> Self {
        let (scope, key) = (scope.as_bytes(), key.as_bytes());
        let mut bytes = Vec::with_capacity(4 + scope.len() + key.len());
        bytes.extend_from_slice(&u32::try_from(scope.len()).unwrap_or(u32::MAX).to_be_bytes());
        bytes.extend_from_slice(scope);
        bytes.extend_from_slice(key);
        Self(bytes)
    }

    /// The scope and the key of a cursor made by [`behind`](Self::behind); `None` for other bytes.
    #[must_use]
    pub fn key(&self) -> Option<(&str, &str)> {
        let (length, rest) = self.0.split_first_chunk::<4>()?;
        let (scope, key) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
        Some((std::str::from_utf8(scope).ok()?, std::str::from_utf8(key).ok()?))
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cursor({} bytes)", self.0.len())
    }
}

/// The name of a record, if this scope and this key are valid.
#[must_use]
pub fn name(scope: &str, key: &str) -> Option<RecordKey> {
    Some(RecordKey::new(Scope::new(scope.to_owned()).ok()?, crate::key::Key::new(key).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_tells_behind_which_key_it_stands_and_does_not_show_it() {
        for (scope, key) in
            [("s", "k"), ("s\0", "\0"), ("a#b|", "ü|{}%"), ("s", "long ".repeat(200).as_str())]
        {
            let cursor = Cursor::behind(&name(scope, key).unwrap());
            assert_eq!(Cursor::from_bytes(cursor.as_bytes().to_vec()).key(), Some((scope, key)));
            assert!(!format!("{cursor:?}").contains(key), "{cursor:?}");
        }
    }

    #[test]
    fn a_cursor_of_something_else_tells_no_key() {
        for bytes in [vec![], vec![0, 0, 0], vec![0, 0, 0, 9, b'a'], vec![0, 0, 0, 1, 0xff, b'k']] {
            assert_eq!(Cursor::from_bytes(bytes.clone()).key(), None, "{bytes:?}");
        }
    }
}
