//! A transaction of the writer: its statements, and what each operation does in it.
//!
//! The protocol owns the rules. This code reads a record, calls the transition, and writes the record that
//! the transition returns.

use std::collections::HashMap;
use std::time::Duration;

use rusqlite::{Connection, Statement, params};

use super::now;
use super::queue::{Answer, Op, Outcome, Purged};
use super::rows::{self, COLUMNS, Steps, StoredRecord, for_key, name};
use idem_core::RecordKey;
use idem_core::protocol::{self, Fence, Record, Request, State, Transition};
use idem_store_kit::step_bytes;

/// The time at which a purge first reads a new record: its creation plus its ttl. A new record does not
/// expire before this time. If a later change makes it expire earlier, `bring_forward` sets an earlier time.
const PURGE_AT: &str = "min(?12 + ?9, 9223372036854775807)";
/// The records that a purge must read at the time ?1, at most ?2.
const DUE: &str = "SELECT rowid FROM idem_records WHERE purge_at <= ?1 ORDER BY purge_at LIMIT ?2";
/// An hour in microseconds.
const HOUR: u64 = 3_600_000_000;

/// Upper limit for the number of records in [`Session::held`]. They take some megabytes.
const MOST_HELD: usize = 4_096;

/// The writer's statements on one connection, and its knowledge of the file.
pub(super) struct Session<'c> {
    pub(super) connection: &'c Connection,
    insert: Statement<'c>,
    update: Statement<'c>,
    put_step: Statement<'c>,
    forget: Statement<'c>,
    purge: Statement<'c>,
    put_off: Statement<'c>,
    bring_forward: Statement<'c>,
    data_version: Statement<'c>,
    /// SQLite's `data_version` in this transaction. It changes when another connection has written to the
    /// file.
    version: i64,
    /// The `data_version` in the last transaction, if that transaction was committed.
    committed: Option<i64>,
    /// The records in flight that this connection wrote, if they have no steps. The next request about such a
    /// record need not read it. The records here are valid until another connection writes to the file.
    held: HashMap<RecordKey, StoredRecord>,
}

impl<'c> Session<'c> {
    pub(super) fn prepare(connection: &'c Connection) -> rusqlite::Result<Self> {
        let values = "(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16";
        let insert = format!(
            "INSERT INTO idem_records ({COLUMNS}, scope, key, purge_at) VALUES {values}, ?17, ?18, {PURGE_AT}) \
             ON CONFLICT (scope, key) DO NOTHING"
        );
        // If a statement fails, the whole transaction ends. `OR FAIL` tells SQLite this, so that it need not
        // keep a copy of every changed page to undo the single statement.
        let update = format!("UPDATE OR FAIL idem_records SET ({COLUMNS}) = {values}) WHERE rowid = ?17");
        let put_step = "INSERT INTO idem_steps (scope, key, position, step) VALUES (?1, ?2, ?3, ?4)";
        Ok(Self {
            connection,
            insert: connection.prepare(&insert)?,
            update: connection.prepare(&update)?,
            put_step: connection.prepare(put_step)?,
            forget: connection
                .prepare("DELETE FROM idem_records WHERE scope = ?1 AND key = ?2 RETURNING expires_at")?,
            purge: connection
                .prepare(&format!("DELETE FROM idem_records WHERE rowid IN ({DUE}) AND expires_at <= ?1"))?,
            put_off: connection.prepare(&format!(
                "UPDATE idem_records SET purge_at = coalesce(expires_at, ?1 + max(ttl, {HOUR})) \
                 WHERE rowid IN ({DUE}) AND (expires_at IS NULL OR expires_at > ?1)"
            ))?,
            bring_forward: connection
                .prepare("UPDATE idem_records SET purge_at = min(purge_at, ?2) WHERE rowid = ?1")?,
            data_version: connection.prepare("PRAGMA data_version")?,
            version: 0,
            committed: None,
            held: HashMap::new(),
        })
    }

    /// Begins a transaction that excludes other writers. Waits at most `patience` for them. Forgets the
    /// records in memory if another connection wrote since the last transaction, or if the last transaction
    /// was not committed.
    pub(super) fn begin(&mut self, patience: Duration) -> rusqlite::Result<()> {
        self.connection.busy_timeout(patience)?;
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        self.version = self.data_version.query_row((), |row| row.get(0))?;
        if self.committed.take() != Some(self.version) {
            self.held.clear();
        }
        Ok(())
    }

    pub(super) fn commit(&mut self) -> rusqlite::Result<()> {
        self.connection.execute_batch("COMMIT")?;
        self.committed = Some(self.version);
        Ok(())
    }

    /// Rolls back a transaction that failed. Returns whether the transaction has ended.
    pub(super) fn roll_back(&self) -> bool {
        self.connection.is_autocommit() || self.connection.execute_batch("ROLLBACK").is_ok()
    }

    /// Executes one operation. If SQLite fails, the outer result is its error, and the transaction may be
    /// half done.
    pub(super) fn apply(&mut self, op: &Op) -> rusqlite::Result<Outcome> {
        Ok(match op {
            Op::Apply(key, request) => for_key(self.transition(key, request), key)?.map(Answer::Applied),
            Op::Forget(key) => Ok(Answer::Forgotten(self.forget(key)?)),
            Op::Purge(limit) => Ok(Answer::Purged(self.purge(*limit)?)),
        })
    }

    fn transition(&mut self, key: &RecordKey, request: &Request) -> rows::Result<protocol::Answer> {
        let stored = match (self.held.get(key), request) {
            (Some(held), _) => Some(held.clone()),
            (_, Request::Claim(_)) => {
                // Most claims that get here are for keys without a record. So a claim tries the insert first,
                // and reads only if the key has a record.
                let Transition { write, answer, .. } =
                    protocol::apply(None, Fence::default(), request, now());
                if let Some(record) = &write
                    && self.put(key, None, record)?
                {
                    return Ok(answer);
                }
                rows::find(self.connection, key, Steps::All)?
            }
            (_, Request::RecordStep(step)) => {
                rows::find(self.connection, key, Steps::Only(Some(step.position)))?
            }
            _ => rows::find(self.connection, key, Steps::Only(None))?,
        };
        let record = stored.as_ref().map(|stored| &stored.record);
        let Transition { write, answer, .. } = protocol::apply(record, Fence::default(), request, now());
        if let Some(record) = &write
            && !self.put(key, stored.as_ref(), record)?
        {
            // The statement wrote no row, for whatever reason, so the operation must not be acknowledged.
            return Err(rusqlite::Error::StatementChangedRows(0).into());
        }
        Ok(answer)
    }

    /// Writes the record in place of `old`, or inserts it if `old` is `None`. Returns whether a row was
    /// written: an insert writes nothing if the key already has a record. A transition keeps the steps, adds
    /// one step or removes all steps. The triggers of the layout delete removed steps.
    fn put(
        &mut self,
        key: &RecordKey,
        old: Option<&StoredRecord>,
        record: &Record,
    ) -> rusqlite::Result<bool> {
        let [scope, name] = name(key);
        let is_written = match old {
            Some(old) => rows::write(&mut self.update, record, &[&old.row])?,
            None => rows::write(&mut self.insert, record, &[&scope, &name])?,
        };
        if !is_written {
            return Ok(false);
        }
        let row = old.map_or_else(|| self.connection.last_insert_rowid(), |old| old.row);
        if let (Some(StoredRecord { record: old, .. }), Some(end)) = (old, record.expires_at)
            && end < old.created_at.after(old.ttl)
        {
            // The record now expires earlier than its claim planned: an operator decided, or the result is
            // kept for less than the `ttl`. So a purge must read the record earlier, too.
            self.bring_forward.execute(params![row, rows::instant(end)])?;
        }
        if record.state != State::InFlight || !record.steps.is_empty() {
            self.held.remove(key);
        } else if self.held.len() < MOST_HELD || self.held.contains_key(key) {
            self.held.insert(key.clone(), StoredRecord { record: record.clone(), row });
        }
        let had = old.map_or(0, |old| old.record.steps.len());
        for (position, step) in record.steps.iter().enumerate().skip(had) {
            let position = rows::number_of_steps(position);
            self.put_step.execute(params![scope, name, position, step_bytes::encode(step)])?;
        }
        Ok(true)
    }

    fn forget(&mut self, key: &RecordKey) -> rusqlite::Result<bool> {
        self.held.remove(key);
        let mut deleted = self.forget.query(name(key))?;
        let mut was_live = false;
        while let Some(row) = deleted.next()? {
            let expires_at: Option<i64> = row.get(0)?;
            was_live = expires_at.is_none_or(|end| rows::instant(now()) < end);
        }
        Ok(was_live)
    }

    /// Reads at most `limit` records that are due, and deletes those that have expired. A record is due
    /// before it expires if it was renewed or its body took time. Such a record is due again when it expires.
    /// A record that never expires is due again after its `ttl`, and after an hour at the earliest.
    pub(super) fn purge(&mut self, limit: usize) -> rusqlite::Result<Purged> {
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let now = rows::instant(now());
        let count = self.purge.execute(params![now, most])?;
        if count > 0 {
            self.held.clear();
        }
        let put_off = if count < limit { self.put_off.execute(params![now, most])? } else { 0 };
        Ok(Purged { count, all: count + put_off < limit })
    }
}
