//! A transaction of the writer: its statements, and what each operation does in it.
//!
//! The protocol owns the rules: this code reads a record, calls the transition, and writes its result.

use std::time::Duration;

use bytes::Bytes;
use rusqlite::{Connection, Statement, params};

use super::clock::now;
use super::find::{FIND, FIND_STEP, FIND_STEPS, StoredRecord, find, name};
use super::held::Held;
use super::queue::{Answer, Op, Outcome, Purged};
use super::rows::{self, COLUMNS, for_key};
use idem_core::RecordKey;
use idem_core::protocol::{self, Fence, Record, RecordedStep, Request, StoredResult, Transition};
use idem_store_kit::columns::Unreadable;
use idem_store_kit::step_bytes;

/// When a purge looks at a new record: at the earliest end that it can have.
const PURGE_AT: &str = "min(?12 + ?9, 9223372036854775807)";
/// The records that a purge is to look at by ?1, ?2 at the most.
const DUE: &str = "SELECT rowid FROM idem_records WHERE purge_at <= ?1 ORDER BY purge_at LIMIT ?2";
/// In microseconds.
const HOUR: u64 = 3_600_000_000;

/// A record with more steps than this is read with all its steps, which are counted.
const MOST_BLANKS: usize = 65_536;

/// The writer's statements on one connection.
pub(super) struct Session<'c> {
    pub(super) connection: &'c Connection,
    find: Statement<'c>,
    find_steps: Statement<'c>,
    find_step: Statement<'c>,
    insert: Statement<'c>,
    update: Statement<'c>,
    put_step: Statement<'c>,
    forget: Statement<'c>,
    purge: Statement<'c>,
    put_off: Statement<'c>,
    bring_forward: Statement<'c>,
    held: Held<'c>,
}

impl<'c> Session<'c> {
    pub(super) fn prepare(connection: &'c Connection) -> rusqlite::Result<Self> {
        let values = "(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16";
        let insert = format!(
            "INSERT INTO idem_records ({COLUMNS}, scope, key, purge_at) VALUES {values}, ?17, ?18, {PURGE_AT}) \
             ON CONFLICT (scope, key) DO NOTHING"
        );
        // If a statement fails, the whole transaction ends. `OR FAIL` tells SQLite so: it need not keep a copy of every
        // changed page to undo the single statement.
        let update = format!("UPDATE OR FAIL idem_records SET ({COLUMNS}) = {values}) WHERE rowid = ?17");
        let put_step = "INSERT INTO idem_steps (scope, key, position, step) VALUES (?1, ?2, ?3, ?4)";
        Ok(Self {
            connection,
            find: connection.prepare(&FIND)?,
            find_steps: connection.prepare(&FIND_STEPS)?,
            find_step: connection.prepare(&FIND_STEP)?,
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
            held: Held::new(connection)?,
        })
    }

    /// Begins a transaction, and waits this long for other connections.
    pub(super) fn begin(&mut self, patience: Duration) -> rusqlite::Result<()> {
        self.connection.busy_timeout(patience)?;
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        self.held.begin()
    }

    pub(super) fn commit(&mut self) -> rusqlite::Result<()> {
        self.connection.execute_batch("COMMIT")?;
        self.held.commit();
        Ok(())
    }

    /// Ends a transaction that failed, and returns whether it has ended.
    pub(super) fn roll_back(&self) -> bool {
        self.connection.is_autocommit() || self.connection.execute_batch("ROLLBACK").is_ok()
    }

    /// Executes one operation. The outer error is SQLite's: the transaction may be half done.
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
            (_, Request::Claim(_)) => match self.claim_new(key, request)? {
                Some(answer) => return Ok(answer),
                None => self.find(key)?,
            },
            (_, Request::RecordStep(step)) => self.find_with_blank_steps(key, Some(step.position))?,
            _ => self.find_with_blank_steps(key, None)?,
        };
        let record = stored.as_ref().map(|stored| &stored.record);
        let Transition { write, answer, .. } = protocol::apply(record, Fence::default(), request, now());
        if let Some(record) = &write {
            self.put(key, stored.as_ref(), record)?;
        }
        Ok(answer)
    }

    /// Claims a key that has no record, as most have whose claim comes here; `None` if it has one.
    fn claim_new(
        &mut self,
        key: &RecordKey,
        request: &Request,
    ) -> rusqlite::Result<Option<protocol::Answer>> {
        let Transition { write, answer, .. } = protocol::apply(None, Fence::default(), request, now());
        let Some(record) = write else { return Ok(None) };
        Ok(self.insert(key, &record)?.map(|row| {
            self.held.put(key, &record, row);
            answer
        }))
    }

    /// Writes a record over the one that was found for its key. A transition adds one step or removes all; the triggers
    /// of the layout delete the removed steps.
    pub(super) fn put(
        &mut self,
        key: &RecordKey,
        old: Option<&StoredRecord>,
        record: &Record,
    ) -> rusqlite::Result<()> {
        let written = match old {
            Some(old) => rows::write(&mut self.update, record, &[&old.row])?.then_some(old.row),
            None => self.insert(key, record)?,
        };
        let Some(row) = written else {
            // The record is not in the file, for whatever reason, so the operation must not be acknowledged.
            return Err(rusqlite::Error::StatementChangedRows(0));
        };
        if let (Some(StoredRecord { record: old, .. }), Some(end)) = (old, record.expires_at)
            && end < old.created_at.after(old.ttl)
        {
            // An operator's word, or a result that is kept for a shorter time: a purge is to look at it earlier.
            self.bring_forward.execute(params![row, rows::instant(end)])?;
        }
        self.held.put(key, record, row);
        let had = old.map_or(0, |old| old.record.steps.len());
        for (position, step) in record.steps.iter().enumerate().skip(had) {
            let [scope, name] = name(key);
            let position = rows::number_of_steps(position);
            self.put_step.execute(params![scope, name, position, step_bytes::encode(step)])?;
        }
        Ok(())
    }

    /// Writes the record of a key if it has none, and says where.
    fn insert(&mut self, key: &RecordKey, record: &Record) -> rusqlite::Result<Option<i64>> {
        let [scope, name] = name(key);
        let written = rows::write(&mut self.insert, record, &[&scope, &name])?;
        Ok(written.then(|| self.connection.last_insert_rowid()))
    }

    pub(super) fn find(&mut self, key: &RecordKey) -> rows::Result<Option<StoredRecord>> {
        find(&mut self.find, || Ok(&mut self.find_steps), key)
    }

    /// The record of a key with empty steps, except the one at `position`. Steps may be large, and all other operations
    /// on the file would wait while they are read.
    fn find_with_blank_steps(
        &mut self,
        key: &RecordKey,
        position: Option<u32>,
    ) -> rows::Result<Option<StoredRecord>> {
        let mut rows = self.find.query(name(key))?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let (mut record, count) = rows::read(row)?;
        let row = row.get(rows::NUMBER_OF_COLUMNS)?;
        drop(rows);
        let Some(count) = usize::try_from(count).ok().filter(|count| *count <= MOST_BLANKS) else {
            return self.find(key);
        };
        let blank = RecordedStep::new(String::new(), None, StoredResult::Value(Bytes::new()));
        record.steps = vec![blank; count];
        if let Some(position) = position
            && let Some(step) = usize::try_from(position).ok().and_then(|at| record.steps.get_mut(at))
        {
            let [scope, name] = name(key);
            let mut rows = self.find_step.query(params![scope, name, position])?;
            *step = rows::read_step(rows.next()?.ok_or(Unreadable("steps"))?)?;
        }
        Ok(Some(StoredRecord { record, row }))
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

    /// Looks at no more than `limit` records that are due, and deletes those whose time is over. A record is due before its
    /// time is over where it was renewed or its body took time: then it is due again at its end, and one without an end
    /// after its `ttl`, or an hour.
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
