//! The statements that purge and list records.

use super::Statements;
use crate::db::session::{BEGIN, BEGIN_READING, COMMIT};
use crate::rows::{NOW, RECORD};
use crate::text::{Text as _, add};
use idem_store_kit::sql::Name;

/// For records without `expires_at`: the shortest and the longest time, in microseconds, until a purge reads
/// such a record again. The longest time keeps the sum of clock and time within the range of the column.
const SOONEST: u64 = 3_600_000_000;
const LATEST: u64 = 1 << 61;

impl Statements {
    /// Begins a transaction and locks at most this many records that are due for a purge. Result sets: those
    /// of `BEGIN`; scope, key and number of steps of each record, and whether it is expired. Skips rows that
    /// another transaction holds.
    pub(crate) fn lock_due(&self, most: usize) -> String {
        let records = &self.names.records;
        format!(
            "{BEGIN}SELECT scope, `key`, steps, expires_at IS NOT NULL AND expires_at <= {NOW} FROM {records} FORCE INDEX (due) \
             WHERE purge_at <= {NOW} ORDER BY purge_at LIMIT {most} FOR UPDATE SKIP LOCKED"
        )
    }

    /// Sets when a purge reads a record again: at its `expires_at`. If the record has no `expires_at`, a
    /// purge reads it again after its `ttl`, but after at least [`SOONEST`] and at most [`LATEST`].
    pub(crate) fn put_off(&self, name: Name<'_>) -> String {
        let mut text = format!(
            "UPDATE {} SET purge_at = IFNULL(expires_at, {NOW} + LEAST(GREATEST(ttl, {SOONEST}), {LATEST})) WHERE ",
            self.names.records
        );
        text.is_name(name);
        text
    }

    /// Reads a page of records. Result sets: those of `BEGIN_READING`; the time; then scope, key and columns
    /// of each record, with the length of its result but not the result.
    pub(crate) fn list(&self, scope: Option<&str>, after: (&str, &str), limit: usize) -> String {
        let mut text = format!(
            "{BEGIN_READING}SELECT {NOW}; SELECT scope, `key`, {RECORD}, NULL \
             FROM {} FORCE INDEX (PRIMARY) WHERE ",
            self.names.records
        );
        let (after_scope, after_key) = (scope.unwrap_or(after.0), after.1);
        if scope.is_none() {
            text.push_str("scope > ");
            text.bytes(after_scope.as_bytes());
            text.push_str(" OR ");
        }
        text.push_str("scope = ");
        text.bytes(after_scope.as_bytes());
        text.push_str(" AND `key` > ");
        text.bytes(after_key.as_bytes());
        add(&mut text, format_args!(" ORDER BY scope, `key` LIMIT {limit}; {COMMIT}"));
        text
    }
}
