//! One transaction of the writer: its statements, and what each operation does in it.
//!
//! The rules are the protocol's: this reads a record, runs the transition, and writes what it says.

use std::ops::DerefMut;
use std::time::SystemTime;

use rusqlite::{Connection, Statement, params};

use super::listing;
use super::queue::{Answer, Claiming, Op};
use super::rows::{self, COLUMNS, REPLAY_COLUMNS, RowError, STEP_COLUMNS};
use crate::error::StoreError;
use crate::key::RecordKey;
use crate::protocol::{self, Fence, Record, Step, Timestamp};

/// Now, by the clock of the host the file lives on, which all its processes share.
pub(super) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// The statement that finds a record by scope and key, and where it lies.
pub(super) fn find_sql() -> String {
    format!("SELECT {COLUMNS}, rowid FROM idem_records WHERE scope = ?1 AND key = ?2")
}

/// The statement that finds what a claim asks of a record that has a result.
pub(super) fn find_replay_sql() -> String {
    format!("SELECT {REPLAY_COLUMNS} FROM idem_records WHERE scope = ?1 AND key = ?2")
}

/// The statement that finds the steps of a record.
pub(super) fn find_steps_sql() -> String {
    format!("SELECT {STEP_COLUMNS} FROM idem_steps WHERE scope = ?1 AND key = ?2 ORDER BY position")
}

/// The parameters of a statement that asks for one key.
pub(super) fn name(key: &RecordKey) -> [&str; 2] {
    [key.scope().as_str(), key.key().as_str()]
}

/// A record as it lies in the file.
#[derive(Debug, PartialEq)]
pub(super) struct Found {
    pub(super) record: Record,
    row: i64,
}

/// Reads the record of a key with a statement made of [`find_sql`], and where it has steps, those with one
/// made of [`find_steps_sql`].
pub(super) fn find<'c, S: DerefMut<Target = Statement<'c>>>(
    statement: &mut Statement<'_>,
    steps: impl FnOnce() -> rusqlite::Result<S>,
    key: &RecordKey,
) -> Result<Option<Found>, RowError> {
    let name = name(key);
    let mut found = statement.query(name)?;
    let Some(row) = found.next()? else { return Ok(None) };
    let (mut record, count) = rows::read(row)?;
    let row = row.get(rows::NUMBER_OF_COLUMNS)?;
    if count > 0 {
        // The first statement is still at its row, so both read the same snapshot.
        let mut statement = steps()?;
        let mut found = statement.query(name)?;
        while let Some(row) = found.next()? {
            record.steps.push(rows::read_step(row)?);
        }
        if u64::try_from(record.steps.len()).ok() != Some(count) {
            return Err(RowError::Unreadable("steps"));
        }
    }
    Ok(Some(Found { record, row }))
}

/// The error of a row that is no record.
pub(super) fn unreadable(key: &RecordKey, column: &str) -> StoreError {
    StoreError::corrupt_record(format!(
        "column {column} of the record of {} (key digest {}); look at it with the sqlite3 tool, and correct or forget it",
        key.scope(),
        key.digest()
    ))
}

/// Why an operation has no answer.
pub(super) enum Failure {
    /// It is this operation's alone; nothing of it was applied.
    Own(StoreError),
    /// SQLite failed, and the transaction may be half done.
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// The writer's statements on one connection.
pub(super) struct Session<'c> {
    connection: &'c Connection,
    begin: Statement<'c>,
    commit: Statement<'c>,
    rollback: Statement<'c>,
    find: Statement<'c>,
    find_steps: Statement<'c>,
    insert: Statement<'c>,
    update: Statement<'c>,
    put_step: Statement<'c>,
    forget: Statement<'c>,
    purge: Statement<'c>,
    next_expiry: Statement<'c>,
    read_floor: Statement<'c>,
    write_floor: Statement<'c>,
    /// The highest fence ever deleted, once it was read in this transaction.
    floor: Option<u64>,
    /// Whether it rose in this transaction.
    floor_rose: bool,
}

impl<'c> Session<'c> {
    pub(super) fn prepare(connection: &'c Connection) -> rusqlite::Result<Self> {
        let values = "(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16";
        let insert = format!(
            "INSERT INTO idem_records ({COLUMNS}, scope, key) VALUES {values}, ?17, ?18) \
             ON CONFLICT (scope, key) DO NOTHING"
        );
        // A statement that fails ends the transaction here, so SQLite need not keep a copy of every page that
        // it changes to undo the one statement: that is what `OR FAIL` says.
        let update = format!("UPDATE OR FAIL idem_records SET ({COLUMNS}) = {values}) WHERE rowid = ?17");
        let put_step = format!(
            "INSERT INTO idem_steps (scope, key, position, {STEP_COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
        );
        Ok(Self {
            connection,
            begin: connection.prepare("BEGIN IMMEDIATE")?,
            commit: connection.prepare("COMMIT")?,
            rollback: connection.prepare("ROLLBACK")?,
            find: connection.prepare(&find_sql())?,
            find_steps: connection.prepare(&find_steps_sql())?,
            insert: connection.prepare(&insert)?,
            update: connection.prepare(&update)?,
            put_step: connection.prepare(&put_step)?,
            forget: connection.prepare(
                "DELETE FROM idem_records WHERE scope = ?1 AND key = ?2 RETURNING fence, expires_at",
            )?,
            purge: connection.prepare(
                "DELETE FROM idem_records WHERE rowid IN \
                 (SELECT rowid FROM idem_records WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2) \
                 RETURNING fence",
            )?,
            next_expiry: connection.prepare(
                "SELECT expires_at FROM idem_records WHERE expires_at > 0 ORDER BY expires_at LIMIT 1",
            )?,
            read_floor: connection.prepare("SELECT value FROM idem_meta WHERE name = 'fence_floor'")?,
            write_floor: connection.prepare(
                "INSERT INTO idem_meta (name, value) VALUES ('fence_floor', ?1) \
                 ON CONFLICT (name) DO UPDATE SET value = max(value, ?1)",
            )?,
            floor: None,
            floor_rose: false,
        })
    }

    pub(super) fn begin(&mut self) -> rusqlite::Result<()> {
        self.floor = None;
        self.floor_rose = false;
        self.begin.execute(()).map(drop)
    }

    pub(super) fn commit(&mut self) -> rusqlite::Result<()> {
        self.commit.execute(()).map(drop)
    }

    pub(super) fn rollback(&mut self) -> rusqlite::Result<()> {
        self.rollback.execute(()).map(drop)
    }

    /// When the next record expires, if one does.
    pub(super) fn next_expiry(&mut self) -> rusqlite::Result<Option<Timestamp>> {
        let mut found = self.next_expiry.query(())?;
        Ok(match found.next()? {
            Some(row) => Some(Timestamp::from_micros(u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0))),
            None => None,
        })
    }

    /// Carries out one operation.
    pub(super) fn apply(&mut self, op: &Op) -> Result<Answer, Failure> {
        match op {
            Op::Claim(claim) => self.claim(claim).map(Answer::Claim),
            Op::Renew(key, request) => {
                self.step(key, |record, now| protocol::renew(record, request, now)).map(Answer::Renew)
            }
            Op::RecordStep(key, request) => self
                .step(key, |record, now| protocol::record_step(record, request, now))
                .map(Answer::RecordStep),
            Op::Complete(key, request) => {
                self.step(key, |record, now| protocol::complete(record, request, now)).map(Answer::Complete)
            }
            Op::Release(key, request) => {
                self.step(key, |record, now| protocol::release(record, request, now)).map(Answer::Release)
            }
            Op::Resolve(key, resolution) => {
                self.step(key, |record, now| protocol::resolve(record, resolution, now)).map(Answer::Resolve)
            }
            Op::Forget(key) => self.forget(key).map(Answer::Forget),
            Op::Get(key) => self
                .find(key)
                .map(|found| found.map(|found| found.record))
                .map(|record| record.filter(|record| protocol::is_live(record, now())))
                .map(Answer::Get),
            Op::Purge(limit) => self.purge(*limit).map(Answer::Purge),
            Op::List(request) => Ok(Answer::List(listing::page(self.connection, request)?)),
        }
    }

    fn claim(
        &mut self,
        Claiming { key, request, seems_new }: &Claiming,
    ) -> Result<protocol::ClaimAnswer, Failure> {
        if *seems_new {
            let step = protocol::claim(None, Fence::new(self.floor()?), request, now());
            if let Some(record) = &step.write
                && self.insert(key, record)?
            {
                return Ok(step.answer);
            }
        }
        let found = self.find(key)?;
        let record = found.as_ref().map(|found| &found.record);
        let now = now();
        // A live record's own fence is above every fence its key had before.
        let floor = match record {
            Some(record) if protocol::is_live(record, now) => Fence::default(),
            _ => Fence::new(self.floor()?),
        };
        let step = protocol::claim(record, floor, request, now);
        self.write(key, found.as_ref(), step)
    }

    fn step<A>(
        &mut self,
        key: &RecordKey,
        transition: impl FnOnce(Option<&Record>, Timestamp) -> Step<A>,
    ) -> Result<A, Failure> {
        let found = self.find(key)?;
        let step = transition(found.as_ref().map(|found| &found.record), now());
        self.write(key, found.as_ref(), step)
    }

    fn write<A>(&mut self, key: &RecordKey, old: Option<&Found>, step: Step<A>) -> Result<A, Failure> {
        if let Some(record) = &step.write {
            self.put(key, old, record)?;
        }
        Ok(step.answer)
    }

    /// Writes a record in the place of what was found for its key. A transition adds one step or leaves out
    /// all; those that are left out go by the layout's own triggers.
    pub(super) fn put(
        &mut self,
        key: &RecordKey,
        old: Option<&Found>,
        record: &Record,
    ) -> rusqlite::Result<()> {
        let written = match old {
            Some(old) => rows::update(&mut self.update, old.row, record)?,
            None => self.insert(key, record)?,
        };
        if !written {
            // Not to be acknowledged, whatever kept it out of the file.
            return Err(rusqlite::Error::StatementChangedRows(0));
        }
        let had = old.map_or(0, |old| old.record.steps.len());
        for (position, step) in record.steps.iter().enumerate().skip(had) {
            rows::write_step(&mut self.put_step, key, position, step)?;
        }
        Ok(())
    }

    /// Writes the record of a key if it has none; whether that was so.
    fn insert(&mut self, key: &RecordKey, record: &Record) -> rusqlite::Result<bool> {
        rows::insert(&mut self.insert, key, record)
    }

    pub(super) fn find(&mut self, key: &RecordKey) -> Result<Option<Found>, Failure> {
        find(&mut self.find, || Ok(&mut self.find_steps), key).map_err(|error| match error {
            RowError::Sqlite(error) => Failure::Sqlite(error),
            RowError::Unreadable(column) => Failure::Own(unreadable(key, column)),
        })
    }

    fn forget(&mut self, key: &RecordKey) -> Result<bool, Failure> {
        let mut deleted = self.forget.query(name(key))?;
        let mut fence = None;
        let mut was_live = false;
        while let Some(row) = deleted.next()? {
            let expires_at: Option<i64> = row.get(1)?;
            fence = Some(row.get(0)?);
            was_live = expires_at.is_none_or(|end| rows::instant(now()) < end);
        }
        drop(deleted);
        if let Some(fence) = fence {
            self.raise_floor(fence)?;
        }
        Ok(was_live)
    }

    /// Deletes at most `limit` records whose time is over.
    pub(super) fn purge(&mut self, limit: usize) -> Result<usize, Failure> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut deleted = self.purge.query(params![rows::instant(now()), limit])?;
        let mut count = 0;
        let mut highest = None;
        while let Some(row) = deleted.next()? {
            count += 1;
            highest = highest.max(Some(row.get(0)?));
        }
        drop(deleted);
        if let Some(fence) = highest {
            self.raise_floor(fence)?;
        }
        Ok(count)
    }

    fn floor(&mut self) -> rusqlite::Result<u64> {
        if let Some(floor) = self.floor {
            return Ok(floor);
        }
        let mut found = self.read_floor.query(())?;
        let floor = match found.next()? {
            Some(row) => u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0),
            None => 0,
        };
        self.floor = Some(floor);
        Ok(floor)
    }

    fn raise_floor(&mut self, fence: i64) -> rusqlite::Result<()> {
        let fence = u64::try_from(fence).unwrap_or(0);
        if fence > self.floor()? {
            self.floor = Some(fence);
            self.floor_rose = true;
        }
        Ok(())
    }

    /// Writes down how far the floor rose, before the commit.
    pub(super) fn write_floor(&mut self) -> rusqlite::Result<()> {
        match self.floor {
            Some(floor) if self.floor_rose => {
                self.write_floor.execute(params![rows::integer(floor)]).map(drop)
            }
            _ => Ok(()),
        }
    }
}
