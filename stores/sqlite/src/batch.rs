//! One transaction of the writer: its statements, and what each operation does in it.
//!
//! The rules are the protocol's: this reads a record, runs the transition, and writes what it says.

use bytes::Bytes;
use rusqlite::{Connection, Statement, params};

use super::clock::now;
use super::find::{Found, find, find_sql, find_step_sql, find_steps_sql, name, unreadable};
use super::listing;
use super::queue::{Answer, Applying, Op};
use super::rows::{self, COLUMNS, RowError, STEP_COLUMNS};
use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::protocol::{self, Fence, Record, RecordedStep, Request, StoredResult, Timestamp, Transition};

/// A record that says it has more steps is read with all of them, and they are counted.
const MOST_BLANKS: usize = 65_536;

/// Why an operation has no answer.
pub(super) enum Failure {
    /// It is this operation's alone; nothing of it was applied.
    Own(StoreError),
    /// SQLite failed, and the transaction may be half done.
    Sqlite(rusqlite::Error),
}

impl Failure {
    fn of(error: RowError, key: &RecordKey) -> Self {
        match error {
            RowError::Sqlite(error) => Self::Sqlite(error),
            RowError::Unreadable(column) => Self::Own(unreadable(key, column)),
        }
    }
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
    find_step: Statement<'c>,
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
            find_step: connection.prepare(&find_step_sql())?,
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
            Op::Apply(applying) => self.transition(applying).map(Answer::Applied),
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

    fn transition(&mut self, applying: &Applying) -> Result<protocol::Answer, Failure> {
        let Applying { key, request, seems_new } = applying;
        let found = match request {
            Request::Claim(_) if *seems_new => match self.claim_new(key, request)? {
                Some(answer) => return Ok(answer),
                None => self.find(key)?,
            },
            Request::RecordStep(step) => self.find_with_blank_steps(key, Some(step.position))?,
            Request::Renew(_) | Request::Complete(_) | Request::Release(_) | Request::Resolve(_) => {
                self.find_with_blank_steps(key, None)?
            }
            _ => self.find(key)?,
        };
        let record = found.as_ref().map(|found| &found.record);
        let now = now();
        // A live record's own fence is above every fence its key had before.
        let floor = match record {
            Some(record) if protocol::is_live(record, now) => Fence::default(),
            _ => Fence::new(self.floor()?),
        };
        let Transition { write, answer, .. } = protocol::apply(record, floor, request, now);
        if let Some(record) = &write {
            self.put(key, found.as_ref(), record)?;
        }
        Ok(answer)
    }

    /// The answer to a claim of a key that has no record; nothing where it has one.
    fn claim_new(&mut self, key: &RecordKey, request: &Request) -> Result<Option<protocol::Answer>, Failure> {
        let floor = Fence::new(self.floor()?);
        let Transition { write, answer, .. } = protocol::apply(None, floor, request, now());
        match write {
            Some(record) if self.insert(key, &record)? => Ok(Some(answer)),
            _ => Ok(None),
        }
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
        find(&mut self.find, || Ok(&mut self.find_steps), key).map_err(|error| Failure::of(error, key))
    }

    /// The record of a key with blanks in the place of its steps, but for the one at `position`. They may be large,
    /// and while they were read all other operations on the file would wait.
    fn find_with_blank_steps(
        &mut self,
        key: &RecordKey,
        position: Option<u32>,
    ) -> Result<Option<Found>, Failure> {
        let failed = |error| Failure::of(error, key);
        let mut found = self.find.query(name(key))?;
        let Some(row) = found.next()? else { return Ok(None) };
        let (mut record, count) = rows::read(row).map_err(failed)?;
        let row = row.get(rows::NUMBER_OF_COLUMNS)?;
        drop(found);
        let Some(count) = usize::try_from(count).ok().filter(|count| *count <= MOST_BLANKS) else {
            return self.find(key);
        };
        let blank = RecordedStep::new(String::new(), None, StoredResult::Value(Bytes::new()));
        record.steps = vec![blank; count];
        let position = position.and_then(|position| usize::try_from(position).ok());
        if let Some((position, step)) = position.and_then(|at| Some((at, record.steps.get_mut(at)?))) {
            let [scope, key_text] = name(key);
            let mut found =
                self.find_step.query(params![scope, key_text, rows::number_of_steps(position)])?;
            let row = found.next()?.ok_or(RowError::Unreadable("steps")).map_err(failed)?;
            *step = rows::read_step(row).map_err(failed)?;
        }
        Ok(Some(Found { record, row }))
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
