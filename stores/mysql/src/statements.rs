//! The texts of the statements, for one store's names.
//!
//! No rule of the protocol is restated here: rows are read under a lock, judged by the protocol's own functions, and
//! written.

use bytes::Bytes;

use idem_core::RecordKey;
use idem_core::protocol::{Record, StoredResult};

use super::layout::Names;
use super::rows::{COLUMNS, add, hex, is_key, literals, result_literal};
use crate::db::identifier::Identifier;
use crate::db::session::{BEGIN, BEGIN_READING, COMMIT};

/// The server's now in microseconds, when the statement began, whatever the session's time zone is.
pub(super) const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))";

/// Up to how many bytes a result is read together with its record, and written in the text of a statement.
pub(super) const SMALL_RESULT: usize = 64 << 10;

/// The texts for one store's names.
#[derive(Debug)]
pub(super) struct Statements {
    names: Names,
    columns: String,
}

impl Statements {
    pub(super) fn new(names: Names) -> Self {
        Self { names, columns: COLUMNS.join(", ") }
    }

    /// Begins a transaction and locks the rows of these keys: the beginning; scope, key and record of each that there
    /// is; then now and the numbers in the table beside. Now is read when the locks are held.
    pub(super) fn lock<'k>(&self, keys: impl ExactSizeIterator<Item = &'k RecordKey>) -> String {
        let mut text = BEGIN.to_owned();
        self.select(&mut text, keys);
        text.push_str(" FOR UPDATE NOWAIT; ");
        self.clock(&mut text);
        text
    }

    /// Reads the rows of these keys and locks none: as `lock`, but now comes first, so that no record that is alive
    /// when it is read passes for one that is not.
    pub(super) fn look<'k>(&self, keys: impl ExactSizeIterator<Item = &'k RecordKey>) -> String {
        let mut text = BEGIN_READING.to_owned();
        self.clock(&mut text);
        text.push_str("; ");
        self.select(&mut text, keys);
        add(&mut text, format_args!("; {COMMIT}"));
        text
    }

    /// Now, the floor of fences, and whether transactions of callers are in use.
    fn clock(&self, text: &mut String) {
        let meta = &self.names.meta;
        add(
            text,
            format_args!(
                "SELECT {NOW}, (SELECT value FROM {meta} WHERE name = 'fence_floor'), \
                 (SELECT value FROM {meta} WHERE name = 'transactions')"
            ),
        );
    }

    fn select<'k>(&self, text: &mut String, keys: impl ExactSizeIterator<Item = &'k RecordKey>) {
        let (records, columns, count) = (&self.names.records, &self.columns, keys.len());
        // By the primary key, whatever the optimizer thinks of a small table: else it would lock rows of others. The
        // limit leaves out none: it is there because a server may be set to give fewer rows where a statement has none.
        add(
            text,
            format_args!(
                "SELECT scope, `key`, {columns}, OCTET_LENGTH(result), \
                 IF(OCTET_LENGTH(result) <= {SMALL_RESULT}, result, NULL) \
                 FROM {records} FORCE INDEX (PRIMARY) WHERE "
            ),
        );
        for (place, key) in keys.enumerate() {
            text.push_str(if place == 0 { "(" } else { " OR (" });
            is_key(text, key);
            text.push(')');
        }
        add(text, format_args!(" LIMIT {count}"));
    }

    /// One record with all that belongs to it, of one snapshot: the beginning; now and the numbers in the table beside;
    /// the row; its steps in their order.
    pub(super) fn look_at_all(&self, key: &RecordKey) -> String {
        let (Names { records, steps, .. }, columns) = (&self.names, &self.columns);
        let mut text = BEGIN_READING.to_owned();
        self.clock(&mut text);
        add(
            &mut text,
            format_args!(
                "; SELECT scope, `key`, {columns}, OCTET_LENGTH(result), result FROM {records} WHERE "
            ),
        );
        is_key(&mut text, key);
        add(&mut text, format_args!(" LIMIT 1; SELECT step FROM {steps} WHERE "));
        is_key(&mut text, key);
        add(&mut text, format_args!(" ORDER BY position LIMIT {}; {COMMIT}", u32::MAX));
        text
    }

    /// One step of a record.
    pub(super) fn step(&self, key: &RecordKey, position: u32) -> String {
        let mut text = format!("SELECT step FROM {} WHERE ", self.names.steps);
        is_key(&mut text, key);
        add(&mut text, format_args!(" AND position = {position} LIMIT 1"));
        text
    }

    /// Writes new records, `with_result` or without; if one of them is there, none is written.
    pub(super) fn insert<'r>(
        &self,
        records: impl Iterator<Item = (&'r RecordKey, &'r Record)>,
        with_result: impl Fn(&Record) -> bool,
    ) -> String {
        let mut text =
            format!("INSERT INTO {} (scope, `key`, {}, result) VALUES ", self.names.records, self.columns);
        for (place, (key, record)) in records.enumerate() {
            text.push_str(if place == 0 { "(" } else { ", (" });
            hex(&mut text, key.scope().as_str().as_bytes());
            text.push_str(", ");
            hex(&mut text, key.key().as_str().as_bytes());
            for literal in literals(record) {
                text.push_str(", ");
                text.push_str(&literal);
            }
            text.push_str(", ");
            if with_result(record) {
                result_literal(&mut text, record);
            } else {
                text.push_str("NULL");
            }
            text.push(')');
        }
        text
    }

    /// Writes a record in the place of the one that is there.
    pub(super) fn update(&self, key: &RecordKey, record: &Record, with_result: bool) -> String {
        let mut text = self.set(record, with_result);
        is_key(&mut text, key);
        text
    }

    fn set(&self, record: &Record, with_result: bool) -> String {
        let mut text = format!("UPDATE {} SET ", self.names.records);
        for (column, literal) in COLUMNS.iter().zip(literals(record)) {
            add(&mut text, format_args!("{column} = {literal}, "));
        }
        text.push_str("result = ");
        if with_result {
            result_literal(&mut text, record);
        } else {
            text.push_str("NULL");
        }
        text.push_str(" WHERE ");
        text
    }

    /// Writes a record in the place of the one that was seen.
    pub(super) fn replace_seen(
        &self,
        key: &RecordKey,
        seen: &Record,
        record: &Record,
        with_result: bool,
    ) -> String {
        let mut text = self.set(record, with_result);
        is_seen(&mut text, key, seen);
        text
    }

    /// Locks the row that was seen; none if it is another by now, or another transaction has it.
    pub(super) fn lock_seen(&self, key: &RecordKey, seen: &Record) -> String {
        let mut text = format!("SELECT fence FROM {} FORCE INDEX (PRIMARY) WHERE ", self.names.records);
        is_seen(&mut text, key, seen);
        text.push_str(" LIMIT 1 FOR UPDATE SKIP LOCKED");
        text
    }

    /// Locks the place of a record: the lock of a row outlives its deletion to the end of the transaction.
    pub(super) fn lock_place(&self, key: &RecordKey, record: &Record) -> String {
        let mut text = self.insert([(key, record)].into_iter(), |_| false);
        text.push_str("; ");
        text.push_str(&self.delete(key.scope().as_str().as_bytes(), key.key().as_str().as_bytes()));
        text
    }

    /// Notes that transactions of callers are in use.
    pub(super) fn announce(&self) -> String {
        format!(
            "{BEGIN}INSERT INTO {} (name, value) VALUES ('transactions', 1) ON DUPLICATE KEY UPDATE value = 1; {COMMIT}",
            self.names.meta
        )
    }

    /// Writes the result of a record, the parameter.
    pub(super) fn put_result(&self, key: &RecordKey) -> String {
        let mut text = format!("UPDATE {} SET result = ? WHERE ", self.names.records);
        is_key(&mut text, key);
        text
    }

    fn insert_step(&self, key: &RecordKey, position: usize) -> String {
        let mut text = format!("REPLACE INTO {} (scope, `key`, position, step) VALUES (", self.names.steps);
        hex(&mut text, key.scope().as_str().as_bytes());
        text.push_str(", ");
        hex(&mut text, key.key().as_str().as_bytes());
        add(&mut text, format_args!(", {position}, "));
        text
    }

    /// Writes a step. What is in its place is left over from a record that somebody deleted by hand.
    pub(super) fn append(&self, key: &RecordKey, position: usize, step: &[u8]) -> String {
        let mut text = self.insert_step(key, position);
        hex(&mut text, step);
        text.push(')');
        text
    }

    /// Writes a step, the parameter.
    pub(super) fn put_step(&self, key: &RecordKey, position: usize) -> String {
        let mut text = self.insert_step(key, position);
        text.push_str("?)");
        text
    }

    /// Deletes a record.
    pub(super) fn delete(&self, scope: &[u8], key: &[u8]) -> String {
        deletion(&self.names.records, scope, key)
    }

    /// Deletes the steps of a record.
    pub(super) fn delete_steps(&self, scope: &[u8], key: &[u8]) -> String {
        deletion(&self.names.steps, scope, key)
    }

    /// Keeps the highest fence that was deleted, so that fences rise also where the clock is set back.
    pub(super) fn raise_floor(&self, fence: u64) -> String {
        format!(
            "UPDATE {} SET value = {fence} WHERE name = 'fence_floor' AND value < {fence}",
            self.names.meta
        )
    }

    /// Begins a transaction and locks at most so many records that are past their time: the beginning; scope, key, fence
    /// and number of steps of each. What another transaction holds is left for later.
    pub(super) fn lock_expired(&self, most: usize) -> String {
        let records = &self.names.records;
        format!(
            "{BEGIN}SELECT scope, `key`, fence, steps FROM {records} FORCE INDEX (expiry) WHERE expires_at <= {NOW} \
             ORDER BY expires_at LIMIT {most} FOR UPDATE SKIP LOCKED"
        )
    }

    /// Now; then scope, key and record of a page of them, without results. The server reads the length of a result, not
    /// the result.
    pub(super) fn list(&self, scope: Option<&str>, after: (&str, &str), limit: usize) -> String {
        let mut text = format!(
            "{BEGIN_READING}SELECT {NOW}; SELECT scope, `key`, {}, OCTET_LENGTH(result), NULL \
             FROM {} FORCE INDEX (PRIMARY) WHERE ",
            self.columns, self.names.records
        );
        let (after_scope, after_key) = (scope.unwrap_or(after.0), after.1);
        if scope.is_none() {
            text.push_str("scope > ");
            hex(&mut text, after_scope.as_bytes());
            text.push_str(" OR ");
        }
        text.push_str("scope = ");
        hex(&mut text, after_scope.as_bytes());
        text.push_str(" AND `key` > ");
        hex(&mut text, after_key.as_bytes());
        add(&mut text, format_args!(" ORDER BY scope, `key` LIMIT {limit}; {COMMIT}"));
        text
    }

    /// The version of the layout.
    pub(super) fn version(&self) -> String {
        format!("SELECT value FROM {} WHERE name = 'schema_version' LIMIT 1", self.names.meta)
    }

    /// The comment of the table that holds the version.
    pub(super) fn meta_comment(&self) -> String {
        let mut text = "SELECT table_comment FROM information_schema.tables WHERE table_schema = ".to_owned();
        text_literal(&mut text, &self.names.database);
        text.push_str(" AND table_name = ");
        text_literal(&mut text, &self.names.meta_name);
        text.push_str(" LIMIT 1");
        text
    }
}

/// A result that is too large to stand in the text of a statement.
pub(super) fn large_result(record: &Record) -> Option<&Bytes> {
    match &record.result {
        Some(StoredResult::Value(value)) if value.len() > SMALL_RESULT => Some(value),
        _ => None,
    }
}

/// Adds that the row is still the one that was seen: no two rows of one key have all of this in common.
fn is_seen(text: &mut String, key: &RecordKey, seen: &Record) {
    is_key(text, key);
    for (column, literal) in COLUMNS.iter().zip(literals(seen)) {
        if matches!(*column, "state" | "owner" | "fence" | "lease_until") {
            add(text, format_args!(" AND {column} = {literal}"));
        }
    }
}

fn text_literal(text: &mut String, name: &Identifier) {
    text.push_str("CONVERT(");
    hex(text, name.as_bytes());
    text.push_str(" USING utf8mb4)");
}

fn deletion(table: &str, scope: &[u8], key: &[u8]) -> String {
    let mut text = format!("DELETE FROM {table} WHERE scope = ");
    hex(&mut text, scope);
    text.push_str(" AND `key` = ");
    hex(&mut text, key);
    text
}
