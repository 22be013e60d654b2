//! The prepared statements for many records at once.
//!
//! The server keeps a text prepared for each number of rows, so numbers are rounded up, and the last row is repeated.

use std::iter::repeat_n;

use super::alone::{AT_ONCE, IS_ONE};
use super::{Statements, has};
use crate::layout::Names;
use crate::db::session::BEGIN;
use crate::rows::{COLUMNS, NOW, Value, on_the_server, result_of, values, values_by};
use crate::text::{Prepared, Text as _};
use idem_core::RecordKey;
use idem_core::protocol::Record;

/// The completion of one record. Both records were judged by [`BLANK_CLOCK`](crate::rows::BLANK_CLOCK); the one `before` has only what
/// the request says.
pub(crate) struct Completion<'t> {
    pub(crate) key: &'t RecordKey,
    pub(crate) before: Record,
    pub(crate) after: Record,
}

impl Completion<'_> {
    /// What changes in the record, but for its result.
    fn changes(&self) -> impl Iterator<Item = (&'static str, Value<'_>)> {
        let (old, new) = (values_by(&self.before, on_the_server), values_by(&self.after, on_the_server));
        let changed = COLUMNS.into_iter().zip(old.into_iter().zip(new));
        changed.filter(|(_, (old, new))| old != new).map(|(column, (_, new))| (column, new))
    }

    /// Whether one statement can do both.
    pub(crate) fn goes_with(&self, other: &Self) -> bool {
        self.key.scope() == other.key.scope() && self.changes().eq(other.changes())
    }
}

/// The rows, and the last of them as often as it takes to make their number a power of two.
fn filled<T>(rows: &[T]) -> impl Iterator<Item = (usize, &T)> + Clone {
    let missing = rows.len().next_power_of_two() - rows.len();
    rows.iter().chain(rows.last().into_iter().flat_map(move |last| repeat_n(last, missing))).enumerate()
}

impl Prepared {
    fn comma(&mut self, place: usize) {
        if place > 0 {
            self.push(", ");
        }
    }

    /// Adds a value so that the text is the same for each value of its column.
    fn uniform(&mut self, value: &Value<'_>) {
        match value {
            Value::Null => self.null(),
            Value::Later(later) => {
                self.push(NOW);
                self.push(" + ");
                self.number(*later);
            }
            other => self.value(other),
        }
    }
}

impl Statements {
    /// Begins a transaction and locks the floor of fences, so that it stays. Results: those of the beginning; then the clock. Fails at once
    /// where it would wait.
    pub(crate) fn begin_lot(&self) -> String {
        let meta = &self.names.meta;
        format!(
            "{BEGIN}{AT_ONCE}SELECT {NOW}, (SELECT value FROM {meta} WHERE name = 'fence_floor' LOCK IN SHARE MODE), \
             (SELECT value FROM {meta} WHERE name = 'transactions')"
        )
    }

    /// Inserts those of these records that there are not. Returns scope and key of each that it has inserted.
    ///
    /// `IGNORE` makes a warning of a duplicate, and of values that do not fit: no key or number is too long here.
    pub(crate) fn insert_lot(&self, rows: &[(&RecordKey, &Record)]) -> Prepared {
        let mut text = Prepared::default();
        let Names { records, .. } = &self.names;
        text.push(AT_ONCE);
        text.push(&format!("INSERT IGNORE INTO {records} (scope, `key`, {}) VALUES ", self.columns));
        for (place, (key, record)) in filled(rows) {
            text.comma(place);
            text.push("(");
            text.bytes(key.scope().as_str().as_bytes());
            text.push(", ");
            text.bytes(key.key().as_str().as_bytes());
            for value in &values(record) {
                text.push(", ");
                text.uniform(value);
            }
            text.push(")");
        }
        text.push(" RETURNING scope, `key`");
        text
    }

    /// Completes those of these records that are in flight with their owner and fence, alive and without steps, as a transaction of its own. All
    /// [go together](Completion::goes_with), and have results that are not empty.
    pub(crate) fn complete_lot<'c>(&self, lot: impl Iterator<Item = &'c Completion<'c>>) -> Prepared {
        let lot: Vec<_> = lot.collect();
        let mut text = Prepared::default();
        let Some(first) = lot.first() else { return text };
        text.push(AT_ONCE);
        text.push(&format!("UPDATE {} FORCE INDEX (PRIMARY) SET ", self.names.records));
        for (column, new) in first.changes() {
            text.push(column);
            text.push(" = ");
            text.uniform(&new);
            text.push(", ");
        }
        text.push("result = CASE `key`");
        for (_, Completion { key, after, .. }) in filled(&lot) {
            text.push(" WHEN ");
            text.bytes(key.key().as_str().as_bytes());
            text.push(" THEN ");
            text.value(&result_of(after));
        }
        text.push(" END WHERE scope = ");
        text.bytes(first.key.scope().as_str().as_bytes());
        text.push(" AND `key` IN (");
        for (place, Completion { key, .. }) in filled(&lot) {
            text.comma(place);
            text.bytes(key.key().as_str().as_bytes());
        }
        text.push(") AND (`key`, owner, fence) IN (");
        for (place, Completion { key, before, .. }) in filled(&lot) {
            text.comma(place);
            text.push("(");
            text.bytes(key.key().as_str().as_bytes());
            text.push(", ");
            text.bytes(before.owner.as_bytes());
            text.push(", ");
            text.number(before.fence.get());
            text.push(")");
        }
        text.push(")");
        has(&mut text, &first.before, &["state", "steps"]);
        text.push(&format!(" AND (expires_at IS NULL OR expires_at > {NOW})"));
        text.push(IS_ONE);
        text
    }

    /// Reads the rows of these keys of one scope, as [`look`](Self::look) does. No row if the session is in a transaction, which may have an
    /// older snapshot.
    pub(crate) fn look_at_lot(&self, keys: &[&RecordKey]) -> Prepared {
        let mut text = Prepared::default();
        let Some(first) = keys.first() else { return text };
        text.push("SELECT scope, `key`, ");
        Self::record(&mut text);
        text.push(&format!(", {NOW} FROM {} FORCE INDEX (PRIMARY) WHERE scope = ", self.names.records));
        text.bytes(first.scope().as_str().as_bytes());
        text.push(" AND `key` IN (");
        let mut count = 0;
        for (place, key) in filled(keys) {
            text.comma(place);
            text.bytes(key.key().as_str().as_bytes());
            count = place + 1;
        }
        text.push(&format!(") AND @@in_transaction = 0 LIMIT {count}"));
        text
    }
}
