//! The texts of the statements, for one store's names.
//!
//! Contains no rule of the protocol, because the protocol's own functions decide. The long way (see `change`)
//! reads rows under a lock before it writes. The statements of `prepared` write without reading first.

mod prepared;
#[cfg(test)]
pub(crate) mod test_session;
mod upkeep;

use idem_core::RecordKey;
use idem_core::protocol::{Record, RecordedStep, Timestamp};
use idem_store_kit::sql::{Name, name};
use idem_store_kit::step_bytes;

pub(crate) use self::prepared::Completion;
use super::layout::Names;
use super::rows::{self, COLUMNS, NOW, RECORD, Value, result_of};
use super::text::{Text, add};
use crate::db::session::{BEGIN, BEGIN_READING, COMMIT, ONE};

/// The largest result, in bytes, that is read together with its record.
const SMALL_RESULT: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Statements {
    names: Names,
    columns: String,
}

impl Statements {
    pub(super) fn new(names: Names) -> Self {
        Self { names, columns: COLUMNS.join(", ") }
    }

    /// Begins a transaction and locks the rows of these keys. Result sets: those of `BEGIN`; that of
    /// [`read`](Self::read); then the clock. The time is read when the locks are held.
    pub(super) fn lock<'k>(&self, keys: impl ExactSizeIterator<Item = &'k RecordKey>) -> String {
        let (mut text, count) = (BEGIN.to_owned(), keys.len());
        self.read(&mut text, keys, "", count);
        text.push_str(" FOR UPDATE NOWAIT; ");
        self.clock(&mut text);
        text
    }

    /// Reads the rows of these keys without locks, in a separate transaction. The second result set is that
    /// of [`read`](Self::read).
    pub(super) fn look(&self, keys: &[&RecordKey]) -> String {
        let mut text = ONE.to_owned();
        self.read(&mut text, keys.iter().copied(), "", keys.len());
        // This commit is for sessions in which statements do not commit by themselves.
        add(&mut text, format_args!("; {COMMIT}"));
        text
    }

    /// Adds a read of the rows of these keys, at most `count`: scope, key and record of each, and the time
    /// when the statement began. This time is not later than the read, so that a live record does not look
    /// expired.
    fn read<'k>(
        &self,
        text: &mut impl Text,
        keys: impl Iterator<Item = &'k RecordKey>,
        condition: &str,
        count: usize,
    ) {
        // Forces the primary key, because on a small table the optimizer may scan and so lock rows of other
        // keys. Has a limit, because otherwise the server's `sql_select_limit` could cut the rows.
        text.push(&format!(
            "SELECT scope, `key`, {RECORD}, IF(OCTET_LENGTH(result) <= {SMALL_RESULT}, result, NULL) v, {NOW} \
             FROM {} FORCE INDEX (PRIMARY) WHERE ",
            self.names.records
        ));
        text.are_keys(keys);
        text.push(&format!("{condition} LIMIT {count}"));
    }

    /// Adds the clock: a statement that reads the time, and whether callers use transactions.
    fn clock(&self, text: &mut String) {
        let meta = &self.names.meta;
        add(text, format_args!("SELECT {NOW}, (SELECT value FROM {meta} WHERE name = 'transactions')"));
    }

    /// Reads one record with its result and steps from one snapshot. Result sets: those of `BEGIN_READING`;
    /// the clock; the row; the record's steps in their order.
    pub(super) fn look_at_all(&self, key: &RecordKey) -> String {
        let Names { records, steps, .. } = &self.names;
        let mut text = BEGIN_READING.to_owned();
        self.clock(&mut text);
        add(&mut text, format_args!("; SELECT scope, `key`, {RECORD}, result FROM {records} WHERE "));
        text.is_name(name(key));
        add(&mut text, format_args!(" LIMIT 1; SELECT step FROM {steps} WHERE "));
        text.is_name(name(key));
        add(&mut text, format_args!(" ORDER BY position LIMIT {}; {COMMIT}", u32::MAX));
        text
    }

    pub(super) fn step(&self, key: &RecordKey, position: u32) -> String {
        let mut text = format!("SELECT step FROM {} WHERE ", self.names.steps);
        text.is_name(name(key));
        add(&mut text, format_args!(" AND position = {position} LIMIT 1"));
        text
    }

    /// Inserts new records; if one of them exists, none is inserted.
    pub(super) fn insert<'r>(&self, records: impl Iterator<Item = (&'r RecordKey, &'r Record)>) -> String {
        let mut text = "INSERT".to_owned();
        self.insertion(&mut text, records, Value::instant);
        text
    }

    /// Adds what follows `INSERT`. `instant` converts the instants of a record.
    fn insertion<'r>(
        &self,
        text: &mut impl Text,
        records: impl Iterator<Item = (&'r RecordKey, &'r Record)>,
        instant: impl Fn(Timestamp) -> Value<'r>,
    ) {
        let (table, columns) = (&self.names.records, &self.columns);
        text.push(&format!(" INTO {table} (scope, `key`, {columns}, purge_at, result) VALUES "));
        for (place, (key, record)) in records.enumerate() {
            text.push(if place == 0 { "(" } else { ", (" });
            text.name(name(key));
            let others = [instant(rows::purge_at(record)), result_of(record)];
            for value in rows::values_by(record, &instant).into_iter().chain(others) {
                text.push(", ");
                text.value(&value);
            }
            text.push(")");
        }
    }

    /// Replaces records whose rows this transaction has locked. One statement for all records costs the
    /// server less than a statement for each.
    pub(super) fn replace<'r>(&self, records: impl Iterator<Item = (&'r RecordKey, &'r Record)>) -> String {
        let mut text = self.insert(records);
        text.push_str(
            " ON DUPLICATE KEY UPDATE result = VALUES(result), purge_at = LEAST(purge_at, VALUES(purge_at))",
        );
        for column in COLUMNS {
            add(&mut text, format_args!(", {column} = VALUES({column})"));
        }
        text
    }

    /// Reads a record as the transaction of a caller sees it. Rows: the time; then scope, key and record, if
    /// the key has a record.
    pub(super) fn look_inside(&self, key: &RecordKey, at_once: &str) -> String {
        let mut text = format!(
            "SELECT {NOW}; {at_once}SELECT scope, `key`, {RECORD}, result FROM {} FORCE INDEX (PRIMARY) WHERE ",
            self.names.records
        );
        text.is_name(name(key));
        text.push_str(" LIMIT 1");
        text
    }

    /// Deletes the record, if it has not changed since it was read.
    pub(super) fn delete_seen(&self, key: &RecordKey, seen: &Record) -> String {
        let mut text = format!("DELETE FROM {} WHERE ", self.names.records);
        is_seen(&mut text, key, seen);
        text
    }

    /// Locks the row, if it has not changed since it was read. Returns no row if the row has changed. If
    /// another transaction has locked the row, the statement returns no row, or fails if `at_once` is not
    /// empty. With `at_once`, the statement locks no gap beside the row.
    pub(super) fn lock_seen(&self, key: &RecordKey, seen: &Record, at_once: &str) -> String {
        let mut text =
            format!("{at_once}SELECT fence FROM {} FORCE INDEX (PRIMARY) WHERE ", self.names.records);
        is_seen(&mut text, key, seen);
        text.push_str(if at_once.is_empty() {
            " LIMIT 1 FOR UPDATE SKIP LOCKED"
        } else {
            " LIMIT 1 FOR UPDATE"
        });
        text
    }

    /// Locks the position of a record in the index: inserts a row and deletes it again. The row's lock lasts
    /// until the transaction ends. Writes two rows. If the key has a record, the record stays, and the
    /// statement writes fewer rows. With `at_once`, the statement fails without waiting if another
    /// transaction has locked the position.
    pub(super) fn lock_place(&self, key: &RecordKey, record: &Record, at_once: &str) -> String {
        let mut text = at_once.to_owned() + &self.insert([(key, record)].into_iter());
        // With this clause, the server locks an existing row for writing at once, also a row that is marked
        // as deleted. Otherwise it would first lock the row for reading. If two transactions did so, neither
        // could write.
        text.push_str(" ON DUPLICATE KEY UPDATE fence = fence; ");
        text.push_str(&self.delete_seen(key, record));
        text
    }

    /// Stores the fact that callers use transactions.
    pub(super) fn announce(&self) -> String {
        format!(
            "{BEGIN}INSERT INTO {} (name, value) VALUES ('transactions', 1) ON DUPLICATE KEY UPDATE value = 1; {COMMIT}",
            self.names.meta
        )
    }

    /// Writes a step. Overwrites a step at the same position: such a step can only be left over from a record
    /// that was deleted by hand.
    pub(super) fn append(&self, key: &RecordKey, position: usize, step: &RecordedStep) -> String {
        let mut text = format!("REPLACE INTO {} (scope, `key`, position, step) VALUES (", self.names.steps);
        text.name(name(key));
        add(&mut text, format_args!(", {position}, "));
        text.bytes(&step_bytes::encode(step));
        text.push(')');
        text
    }

    pub(super) fn delete(&self, name: Name<'_>) -> String {
        deletion(&self.names.records, name)
    }

    pub(super) fn delete_steps(&self, name: Name<'_>) -> String {
        deletion(&self.names.steps, name)
    }
}

/// Adds the condition that the row is unchanged. Any two versions of a key's record differ in at least one of
/// these columns, unless only a step was added.
fn is_seen(text: &mut impl Text, key: &RecordKey, seen: &Record) {
    text.is_name(name(key));
    has(text, seen, &["state", "owner", "fence", "lease_until"]);
}

/// Adds the condition that a row agrees with a record in these columns.
fn has(text: &mut impl Text, record: &Record, columns: &[&str]) {
    for (column, value) in COLUMNS.iter().zip(rows::values_by(record, Value::instant)) {
        if columns.contains(column) {
            text.push(" AND ");
            text.push(column);
            text.push(" = ");
            text.value(&value);
        }
    }
}

fn deletion(table: &str, name: Name<'_>) -> String {
    let mut text = format!("DELETE FROM {table} WHERE ");
    text.is_name(name);
    text
}
