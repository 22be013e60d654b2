//! The only thread that writes. It commits all waiting operations in one transaction.

mod pace;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;

pub(super) use self::pace::Pace;
use super::batch::Session;
use super::clock;
use super::failure::{self, Reach};
use super::file::DatabaseFile;
use super::queue::{Outcome, Queue, Ticket, Wake};
use super::schema::{self, Opening, Purpose};
use idem_core::{StoreError, StoreErrorKind};

/// Upper limit of the operations in one transaction.
const BATCH: usize = 512;
/// Approximate upper limit of the bytes of results in one transaction.
const BATCH_BYTES: usize = 16 * 1024 * 1024;
/// How many expired records a transaction deletes beside operations, in addition to one for each of them.
const PURGE: usize = 64;
/// How long to wait before looking for expired records again, if none were left.
const PURGE_EVERY: Duration = Duration::from_secs(1);
/// The longest time without looking for expired records, because the system's clock may have been set.
const PURGE_AT_LEAST: Duration = Duration::from_secs(60);

/// The state of the thread.
pub(super) struct Writer {
    queue: Arc<Queue>,
    file: Arc<DatabaseFile>,
    busy_timeout: Duration,
    /// What the file is opened for, if it must be opened again.
    purpose: Purpose,
    /// When to look for expired records again.
    purge_at: Instant,
    pace: Pace,
}

/// Where a transaction failed.
#[derive(Clone, Copy)]
enum Cause {
    /// At this one of its operations: the others are retried without it.
    Operation(usize),
    /// At the deletion of expired records: the operations are retried without it.
    Purge,
    /// At its commit.
    Commit,
}

impl Writer {
    pub(super) fn new(
        queue: Arc<Queue>,
        file: Arc<DatabaseFile>,
        busy_timeout: Duration,
        purpose: Purpose,
    ) -> Self {
        Self { queue, file, busy_timeout, purpose, purge_at: Instant::now(), pace: Pace::default() }
    }

    /// Serves the queue until it is closed and empty.
    pub(super) fn run(mut self, connection: Connection) {
        let mut opened = Some(connection);
        while let Some(connection) = opened.take().or_else(|| self.reopened()) {
            self.serve(&connection);
            if self.is_in_place() {
                drop(connection);
            } else {
                schema::abandon(connection);
            }
        }
    }

    /// Whether the path names the file that was opened.
    fn is_in_place(&self) -> bool {
        self.file.now() == Some(self.file.opened())
    }

    /// Opens the file that is at the path when there is work; `None` if there will be none.
    fn reopened(&self) -> Option<Connection> {
        loop {
            match self.queue.wait(None) {
                Wake::Work(until) => match self.reopen(until) {
                    Ok(connection) => return Some(connection),
                    Err(error) => self.queue.fail_all(&error),
                },
                Wake::Idle => {}
                Wake::Closed => return None,
            }
        }
    }

    fn reopen(&self, until: Instant) -> Result<Connection, StoreError> {
        let path = self.file.path();
        if self.file.log_is_left() {
            return Err(failure::log_left(path));
        }
        let opening = Opening { purpose: self.purpose, layout: schema::LAYOUT, until };
        let (connection, identity) = schema::open(path, opening).map_err(|error| match error.kind() {
            // While the store runs, an operator may repair the file.
            StoreErrorKind::Configuration => StoreError::unavailable(error.to_string()).with_source(error),
            _ => error,
        })?;
        self.file.set_opened(identity);
        Ok(connection)
    }

    /// Serves the queue until the file must be opened again or the store is dropped.
    fn serve(&mut self, connection: &Connection) {
        let mut session = match Session::prepare(connection) {
            Ok(session) => session,
            Err(error) => {
                let error = failure::not_applied_on(connection, self.file.path(), error);
                return self.queue.fail_all(&error);
            }
        };
        loop {
            let is_usable = match self.queue.wait(Some(self.purge_at)) {
                Wake::Work(until) => self.work(&mut session, until),
                // Nobody waits for a purge, so it does not wait for locks.
                Wake::Idle => !self.has_expired(&mut session) || self.work(&mut session, Instant::now()),
                Wake::Closed => return,
            };
            if !is_usable {
                return;
            }
        }
    }

    /// Runs one transaction for the waiting operations, and deletes expired records in it if that is due. Returns whether
    /// the connection can be used again.
    fn work(&mut self, session: &mut Session<'_>, until: Instant) -> bool {
        self.queue.gather(self.pace.expected.min(BATCH), Instant::now() + self.pace.patience);
        let purges = self.purge_at <= Instant::now();
        if purges {
            self.purge_at = Instant::now() + PURGE_EVERY;
        }
        match self.file.now() {
            Some(identity) if identity == self.file.opened() => {}
            Some(_) => return false,
            None => {
                // The same file may come back, so it stays open.
                self.queue.fail_all(&failure::gone(self.file.path()));
                return true;
            }
        }
        let patience = until.saturating_duration_since(Instant::now()).min(self.busy_timeout);
        if let Err(error) = session.begin(patience) {
            return self.not_begun(session, error);
        }
        let batch = self.queue.take(BATCH, BATCH_BYTES);
        let mut outcomes: Vec<Outcome> = Vec::with_capacity(batch.len());
        for ticket in &batch {
            match session.apply(&ticket.op) {
                Ok(outcome) => outcomes.push(outcome),
                Err(error) => return self.failed(session, batch, Cause::Operation(outcomes.len()), error),
            }
        }
        if purges && let Err(error) = self.purge(session, batch.len()) {
            return self.failed(session, batch, Cause::Purge, error);
        }
        let committing = Instant::now();
        if let Err(error) = session.commit() {
            return self.failed(session, batch, Cause::Commit, error);
        }
        let took = committing.elapsed();
        if !self.is_in_place() {
            // The batch was written, but into a file that others may never see.
            let error = StoreError::outcome_unknown(format!(
                "the file {} was removed or replaced while it was written",
                self.file.path().display()
            ));
            outcomes.iter_mut().for_each(|outcome| *outcome = Err(error.clone()));
        }
        // Something was written, so something may expire.
        self.purge_at = self.purge_at.min(Instant::now() + PURGE_EVERY);
        let waiting = self.queue.finish();
        self.pace = Pace::after(took, batch.len() + waiting);
        for (ticket, outcome) in batch.into_iter().zip(outcomes) {
            ticket.answer(outcome);
        }
        true
    }

    /// Deletes expired records in a transaction with this many operations.
    fn purge(&mut self, session: &mut Session<'_>, operations: usize) -> rusqlite::Result<()> {
        let limit = if operations == 0 { BATCH } else { PURGE + operations };
        if !session.purge(limit)?.all {
            // The next transaction goes on: else a stream of ever new keys would outrun the purge.
            self.purge_at = Instant::now();
        }
        Ok(())
    }

    /// Whether a record is due for a purge.
    fn has_expired(&mut self, session: &mut Session<'_>) -> bool {
        let due = session.next_purge().ok().flatten();
        let pause = due.map_or(PURGE_AT_LEAST, |due| due.since(clock::now()));
        if !pause.is_zero() {
            self.purge_at = Instant::now() + pause.clamp(PURGE_EVERY, PURGE_AT_LEAST);
        }
        pause.is_zero()
    }

    /// Handles a transaction that could not begin. Returns whether the connection can be used again.
    fn not_begun(&self, session: &Session<'_>, error: rusqlite::Error) -> bool {
        let (reach, is_busy) = (failure::reach(&error), failure::is_busy(&error));
        let error = failure::not_applied_on(session.connection, self.file.path(), error);
        if is_busy {
            self.queue.fail_due(Instant::now(), &error);
        } else {
            self.queue.fail_all(&error);
        }
        reach != Reach::Connection && session.connection.is_autocommit()
    }

    /// Handles a transaction that failed. Returns whether the connection can be used again.
    fn failed(
        &self,
        session: &Session<'_>,
        mut batch: Vec<Ticket>,
        cause: Cause,
        error: rusqlite::Error,
    ) -> bool {
        let (reach, is_rolled_back) = (failure::reach(&error), session.roll_back());
        let is_not_applied =
            !matches!(cause, Cause::Commit) || is_rolled_back && failure::is_certainly_not_committed(&error);
        let error = if is_not_applied {
            failure::not_applied_on(session.connection, self.file.path(), error)
        } else {
            failure::outcome_unknown(self.file.path(), error)
        };
        match cause {
            Cause::Operation(culprit) if reach == Reach::Operation => {
                let ticket = batch.remove(culprit);
                self.queue.put_back(batch);
                ticket.answer(Err(error));
            }
            Cause::Purge => self.queue.put_back(batch),
            _ => {
                self.queue.finish();
                for ticket in batch {
                    ticket.answer(Err(error.clone()));
                }
            }
        }
        is_rolled_back && reach != Reach::Connection
    }
}

/// The operations that were not answered fail when the thread ends, also by a panic.
impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.end();
    }
}
