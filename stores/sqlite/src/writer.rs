//! The only thread that writes. It commits all waiting operations in one transaction.

mod pace;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;

pub(super) use self::pace::Pace;
use super::batch::{Failure, Session};
use super::clock;
use super::failure;
use super::file::{DatabaseFile, Standing};
use super::queue::{Outcome, Queue, Ticket, Wake};
use super::schema::{self, Opening};
use idem_core::{StoreError, StoreErrorKind};

/// Upper limit of the operations in one transaction.
const BATCH: usize = 512;
/// Approximate upper limit of the bytes of results in one transaction.
const BATCH_BYTES: usize = 16 * 1024 * 1024;
/// How many expired records a transaction deletes, in addition to one for each of its operations.
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
    /// When to look for expired records again.
    purge_at: Instant,
    /// Until when not to look, after a purge failed.
    no_purge_before: Instant,
    pace: Pace,
    /// Whether it is known to which log the current connection writes.
    log_noted: bool,
}

/// Why the writer stops using a connection.
enum Exit {
    /// The store is dropped.
    Closed,
    /// The file must be opened again.
    Reopen,
}

/// Where a transaction failed.
enum Cause {
    /// At this one of its operations: the others are retried without it.
    Operation(usize),
    /// At the deletion of expired records: the operations are retried without it.
    Purge,
}

/// Tells the queue when the thread ends, also by a panic.
struct Ending(Arc<Queue>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Writer {
    pub(super) fn new(queue: Arc<Queue>, file: Arc<DatabaseFile>, busy_timeout: Duration) -> Self {
        let now = Instant::now();
        Self {
            queue,
            file,
            busy_timeout,
            purge_at: now,
            no_purge_before: now,
            pace: Pace::default(),
            log_noted: false,
        }
    }

    /// Serves the queue until it is closed and empty.
    pub(super) fn run(mut self, connection: Connection) {
        let _ending = Ending(self.queue.clone());
        let mut current = Some(connection);
        loop {
            let Some(connection) = current.take() else {
                match self.queue.wait(None) {
                    Wake::Work(until) => current = self.reopen(until),
                    Wake::Idle => {}
                    Wake::Closed => return,
                }
                continue;
            };
            let exit = self.serve(&connection);
            if matches!(self.file.standing(), Standing::Same) {
                drop(connection);
            } else {
                schema::abandon(connection);
            }
            if matches!(exit, Exit::Closed) {
                return;
            }
        }
    }

    /// Opens the file that is at the path now, if it is a database of idem. Otherwise all waiting operations fail.
    fn reopen(&self, until: Instant) -> Option<Connection> {
        if self.file.log_is_left() {
            self.queue.fail_all(&failure::log_left(self.file.path()));
            return None;
        }
        let opening = Opening { create: false, migrate: true, layout: schema::LAYOUT, until };
        match schema::open(self.file.path(), opening) {
            Ok((connection, identity)) => {
                self.file.set_opened(identity);
                Some(connection)
            }
            Err(error) => {
                self.queue.fail_all(&at_run_time(error));
                None
            }
        }
    }

    fn serve(&mut self, connection: &Connection) -> Exit {
        self.log_noted = false;
        let mut session = match Session::prepare(connection) {
            Ok(session) => session,
            Err(error) => {
                self.queue.fail_all(&failure::not_applied_on(connection, self.file.path(), error));
                return Exit::Reopen;
            }
        };
        loop {
            let exit = match self.queue.wait(Some(self.purge_at)) {
                Wake::Closed => return Exit::Closed,
                Wake::Idle => {
                    self.housekeep(connection, &mut session);
                    None
                }
                Wake::Work(until) => self.work(connection, &mut session, until),
            };
            if let Some(exit) = exit {
                return exit;
            }
        }
    }

    /// Runs one transaction for the waiting operations.
    fn work(&mut self, connection: &Connection, session: &mut Session<'_>, until: Instant) -> Option<Exit> {
        self.queue.gather(self.pace.expected.min(BATCH), Instant::now() + self.pace.patience);
        match self.file.standing() {
            Standing::Same => {}
            Standing::Replaced => return Some(Exit::Reopen),
            Standing::Gone => {
                // The same file may come back, so it stays open.
                self.queue.fail_all(&failure::gone(self.file.path()));
                return None;
            }
        }
        let patience = until.saturating_duration_since(Instant::now()).min(self.busy_timeout);
        let begun = connection.busy_timeout(patience).and_then(|()| session.begin());
        if let Err(error) = begun {
            return self.not_begun(connection, error);
        }
        let batch = self.queue.take(BATCH, BATCH_BYTES);
        let mut outcomes: Vec<Outcome> = Vec::with_capacity(batch.len());
        for ticket in &batch {
            let outcome = match session.apply(&ticket.op) {
                Ok(answer) => Ok(answer),
                Err(Failure::Own(error)) => Err(error),
                Err(Failure::Sqlite(error)) => {
                    let cause = Cause::Operation(outcomes.len());
                    return self.broken(connection, session, batch, &cause, error);
                }
            };
            outcomes.push(outcome);
        }
        if let Err(error) = self.purge_with(session, batch.len()) {
            self.put_off_purge();
            return self.broken(connection, session, batch, &Cause::Purge, error);
        }
        let committing = Instant::now();
        if let Err(error) = session.commit() {
            return self.not_committed(connection, session, batch, error);
        }
        let took = committing.elapsed();
        if !matches!(self.file.standing(), Standing::Same) {
            // The batch was written, but into a file that others may never see.
            let error = StoreError::outcome_unknown(format!(
                "the file {} was removed or replaced while it was written",
                self.file.path().display()
            ));
            outcomes.iter_mut().for_each(|outcome| *outcome = Err(error.clone()));
        }
        // A connection keeps the log that it opened, so the log is noted only once.
        self.log_noted = self.log_noted || self.file.note_log();
        self.purge_soon();
        let waiting = self.queue.finish();
        self.pace = Pace::after(took, batch.len() + waiting);
        for (ticket, outcome) in batch.into_iter().zip(outcomes) {
            ticket.answer(outcome);
        }
        None
    }

    fn not_begun(&self, connection: &Connection, error: rusqlite::Error) -> Option<Exit> {
        let suspect = failure::is_suspect(&error);
        if failure::is_busy(&error) {
            let error = failure::not_applied_on(connection, self.file.path(), error);
            self.queue.fail_due(Instant::now(), &error);
        } else {
            self.queue.fail_all(&failure::not_applied_on(connection, self.file.path(), error));
        }
        (suspect || !connection.is_autocommit()).then_some(Exit::Reopen)
    }

    /// Handles a transaction that failed before its commit: nothing of it was applied.
    fn broken(
        &self,
        connection: &Connection,
        session: &mut Session<'_>,
        mut batch: Vec<Ticket>,
        cause: &Cause,
        error: rusqlite::Error,
    ) -> Option<Exit> {
        let rolled_back = connection.is_autocommit() || session.rollback().is_ok();
        let suspect = failure::is_suspect(&error) || !rolled_back;
        let local = failure::is_local(&error);
        let error = failure::not_applied_on(connection, self.file.path(), error);
        match cause {
            Cause::Operation(culprit) if local => {
                let ticket = batch.remove(*culprit);
                self.queue.put_back(batch);
                ticket.answer(Err(error));
            }
            Cause::Purge if local => self.queue.put_back(batch),
            _ => self.fail(batch, &error),
        }
        suspect.then_some(Exit::Reopen)
    }

    fn not_committed(
        &self,
        connection: &Connection,
        session: &mut Session<'_>,
        batch: Vec<Ticket>,
        error: rusqlite::Error,
    ) -> Option<Exit> {
        let certain = failure::is_certainly_not_committed(&error);
        let suspect = failure::is_suspect(&error);
        let rolled_back = connection.is_autocommit() || session.rollback().is_ok();
        let error = if certain && rolled_back {
            failure::not_applied_on(connection, self.file.path(), error)
        } else {
            failure::outcome_unknown(self.file.path(), error)
        };
        self.fail(batch, &error);
        (suspect || !rolled_back).then_some(Exit::Reopen)
    }

    fn fail(&self, batch: Vec<Ticket>, error: &StoreError) {
        self.queue.finish();
        for ticket in batch {
            ticket.answer(Err(error.clone()));
        }
    }

    /// Something was written, so something may expire.
    fn purge_soon(&mut self) {
        let soon = (Instant::now() + PURGE_EVERY).max(self.no_purge_before);
        self.purge_at = self.purge_at.min(soon);
    }

    fn put_off_purge(&mut self) {
        self.no_purge_before = Instant::now() + PURGE_AT_LEAST;
        self.purge_at = self.no_purge_before;
    }

    /// Deletes some expired records before a commit, if that is due.
    fn purge_with(&mut self, session: &mut Session<'_>, operations: usize) -> rusqlite::Result<()> {
        if Instant::now() >= self.purge_at {
            self.purge_some(session, PURGE + operations)?;
        }
        Ok(())
    }

    /// Whether it looked at all that were due.
    fn purge_some(&mut self, session: &mut Session<'_>, limit: usize) -> Result<bool, rusqlite::Error> {
        let all = match session.purge(limit) {
            Ok(purged) => purged.all,
            Err(Failure::Sqlite(error)) => return Err(error),
            Err(Failure::Own(_)) => true,
        };
        // Where there may be more, the next transaction goes on: else a stream of ever new keys
        // would outrun the purge.
        if all {
            self.purge_at = Instant::now() + PURGE_EVERY;
        }
        Ok(all)
    }

    /// Deletes expired records while there is no other work.
    fn housekeep(&mut self, connection: &Connection, session: &mut Session<'_>) {
        self.purge_at = Instant::now() + PURGE_AT_LEAST;
        if !matches!(self.file.standing(), Standing::Same) {
            return;
        }
        let Ok(Some(due)) = session.next_purge() else {
            return;
        };
        let left = due.since(clock::now());
        if left > Duration::ZERO {
            self.purge_at = Instant::now() + left.clamp(PURGE_EVERY, PURGE_AT_LEAST);
            return;
        }
        // Nobody waits for this purge, so it does not wait for locks.
        let purged = connection
            .busy_timeout(Duration::ZERO)
            .and_then(|()| session.begin())
            .and_then(|()| self.purge_some(session, BATCH))
            .and_then(|all| session.commit().map(|()| all));
        match purged {
            Ok(false) => self.purge_at = Instant::now(),
            Ok(true) => self.purge_at = Instant::now() + PURGE_EVERY,
            Err(error) => {
                if !connection.is_autocommit() {
                    // If this fails, the next transaction cannot begin, and the file is opened again.
                    let _ = session.rollback();
                }
                if failure::is_busy(&error) {
                    self.purge_at = Instant::now() + PURGE_EVERY;
                } else {
                    self.put_off_purge();
                }
            }
        }
    }
}

/// Turns a configuration error into a transient one: while the store runs, an operator may repair the file.
fn at_run_time(error: StoreError) -> StoreError {
    match error.kind() {
        StoreErrorKind::Configuration => {
            let detail = error.to_string();
            let detail = detail.split_once(": ").map_or(detail.as_str(), |(_, detail)| detail);
            StoreError::unavailable(detail.to_owned()).with_source(error)
        }
        _ => error,
    }
}
