//! The one thread that writes: it commits all that wait in one transaction.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::batch::{Failure, Session};
use super::clock;
use super::failure;
use super::file::{DatabaseFile, Standing};
use super::queue::{Outcome, Queue, Reply, Ticket, Wake};
use super::schema::{self, Opening};
use idem_core::{StoreError, StoreErrorKind};

/// The most operations in one transaction.
const BATCH: usize = 512;
/// About the most bytes of results in one transaction.
const BATCH_BYTES: usize = 16 * 1024 * 1024;
/// How many expired records leave with a transaction, besides as many again as it had operations.
const PURGE: usize = 64;
/// How often to look for expired records where there were none left.
const PURGE_EVERY: Duration = Duration::from_secs(1);
/// The longest time without looking: the system's clock may have been set.
const PURGE_AT_LEAST: Duration = Duration::from_secs(60);

/// Operations that are expected are waited for this part of the time that a commit takes.
const PATIENCE: u32 = 4;
/// The longest that they are.
const LONGEST_PATIENCE: Duration = Duration::from_millis(5);
/// The shortest: to sleep for less and wake up again takes longer than that.
const SHORTEST_PATIENCE: Duration = Duration::from_micros(50);

/// What the thread needs.
pub(super) struct Writer {
    queue: Arc<Queue>,
    file: Arc<DatabaseFile>,
    busy_timeout: Duration,
    /// When to look for expired records again.
    purge_at: Instant,
    /// Until when not to, after the purge itself failed.
    no_purge_before: Instant,
    pace: Pace,
    /// Whether it is known which log the present connection writes to.
    log_noted: bool,
}

/// How a transaction waits for the operations that are about to come.
///
/// Callers whose operations were answered come back soon, as a rule: a transaction that begins before they
/// do has few operations in it, and the others wait for a whole commit. So the writer waits for as many as
/// there were last time, for a part of what a commit takes: where they do not come, little is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Pace {
    /// How many operations may come.
    pub(super) expected: usize,
    /// How long they are waited for.
    pub(super) patience: Duration,
}

impl Pace {
    /// After a commit that took this long, and before which so many operations were asked.
    pub(super) fn after(commit: Duration, asked: usize) -> Self {
        let patience = (commit / PATIENCE).min(LONGEST_PATIENCE);
        let worth = patience >= SHORTEST_PATIENCE;
        Self { expected: asked, patience: if worth { patience } else { Duration::ZERO } }
    }
}

/// Why a connection is not used any more.
enum Exit {
    /// The store is dropped.
    Closed,
    /// The connection is to be opened anew.
    Reopen,
}

/// What a transaction failed at.
enum Cause {
    /// This one of its operations: the others are tried again without it.
    Operation(usize),
    /// The deletion of expired records: the operations are tried again without that.
    Purge,
    /// Something that is not to be left out.
    Unknown,
}

/// Tells the queue that the thread ended, should it have ended by a panic.
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

    /// Opens what is at the path now, if it is an idem database; else all operations that wait fail.
    fn reopen(&self, until: Instant) -> Option<Connection> {
        if self.file.log_is_left() {
            self.queue.fail_all(&failure::log_left(self.file.path()));
            return None;
        }
        let opening = Opening { create: false, migrate: true, until };
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
                self.queue.fail_all(&failure::unavailable(self.file.path(), error));
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

    /// One transaction for all that wait.
    fn work(&mut self, connection: &Connection, session: &mut Session<'_>, until: Instant) -> Option<Exit> {
        self.queue.gather(self.pace.expected.min(BATCH), Instant::now() + self.pace.patience);
        match self.file.standing() {
            Standing::Same => {}
            Standing::Replaced => return Some(Exit::Reopen),
            Standing::Gone => {
                // The file may come back as it was, so it stays open.
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
        if let Err(error) = session.write_floor() {
            return self.broken(connection, session, batch, &Cause::Unknown, error);
        }
        let committing = Instant::now();
        if let Err(error) = session.commit() {
            return self.not_committed(connection, session, &batch, error);
        }
        let took = committing.elapsed();
        if !matches!(self.file.standing(), Standing::Same) {
            // It was written, but into a file that others may never see.
            let error = StoreError::outcome_unknown(format!(
                "the file {} was removed or replaced while it was written",
                self.file.path().display()
            ));
            outcomes.iter_mut().for_each(|outcome| *outcome = Err(error.clone()));
        }
        // A connection keeps the log that it opened.
        self.log_noted = self.log_noted || self.file.note_log();
        self.purge_soon();
        let waiting = self.queue.finish();
        self.pace = Pace::after(took, batch.len() + waiting);
        for (ticket, outcome) in batch.iter().zip(outcomes) {
            ticket.reply.send(outcome);
        }
        None
    }

    fn not_begun(&self, connection: &Connection, error: rusqlite::Error) -> Option<Exit> {
        let suspect = failure::is_suspect(&error);
        if failure::is_busy(&error) {
            let error = failure::unavailable(self.file.path(), error);
            self.queue.fail_due(Instant::now(), &error);
        } else {
            self.queue.fail_all(&failure::unavailable(self.file.path(), error));
        }
        (suspect || !connection.is_autocommit()).then_some(Exit::Reopen)
    }

    /// The transaction failed before its commit: nothing of it was applied.
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
        let error = failure::unavailable(self.file.path(), error);
        match cause {
            Cause::Operation(culprit) if local => {
                let ticket = batch.remove(*culprit);
                self.queue.put_back(batch);
                ticket.reply.send(Err(error));
            }
            Cause::Purge if local => self.queue.put_back(batch),
            _ => {
                self.queue.finish();
                fail(batch.iter().map(|ticket| &ticket.reply), &error);
            }
        }
        suspect.then_some(Exit::Reopen)
    }

    fn not_committed(
        &self,
        connection: &Connection,
        session: &mut Session<'_>,
        batch: &[Ticket],
        error: rusqlite::Error,
    ) -> Option<Exit> {
        let certain = failure::is_certainly_not_committed(&error);
        let suspect = failure::is_suspect(&error);
        let rolled_back = connection.is_autocommit() || session.rollback().is_ok();
        let error = if certain && rolled_back {
            failure::unavailable(self.file.path(), error)
        } else {
            failure::outcome_unknown(self.file.path(), error)
        };
        self.queue.finish();
        fail(batch.iter().map(|ticket| &ticket.reply), &error);
        (suspect || !rolled_back).then_some(Exit::Reopen)
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

    /// Before a commit: some expired records leave with it.
    fn purge_with(&mut self, session: &mut Session<'_>, operations: usize) -> rusqlite::Result<()> {
        if Instant::now() >= self.purge_at {
            self.purge_some(session, PURGE + operations)?;
        }
        Ok(())
    }

    fn purge_some(&mut self, session: &mut Session<'_>, limit: usize) -> Result<usize, rusqlite::Error> {
        let purged = match session.purge(limit) {
            Ok(purged) => purged,
            Err(Failure::Sqlite(error)) => return Err(error),
            Err(Failure::Own(_)) => 0,
        };
        // Where there may be more, the next transaction goes on: else a stream of ever new keys
        // would outrun the purge.
        if purged < limit {
            self.purge_at = Instant::now() + PURGE_EVERY;
        }
        Ok(purged)
    }

    /// With nothing else to do: deletes expired records, if there are any.
    fn housekeep(&mut self, connection: &Connection, session: &mut Session<'_>) {
        self.purge_at = Instant::now() + PURGE_AT_LEAST;
        if !matches!(self.file.standing(), Standing::Same) {
            return;
        }
        let Ok(Some(expiry)) = session.next_expiry() else {
            return;
        };
        let left = expiry.since(clock::now());
        if left > Duration::ZERO {
            self.purge_at = Instant::now() + left.clamp(PURGE_EVERY, PURGE_AT_LEAST);
            return;
        }
        // Nobody waits for this, so it waits for nobody.
        let purged = connection
            .busy_timeout(Duration::ZERO)
            .and_then(|()| session.begin())
            .and_then(|()| self.purge_some(session, BATCH))
            .and_then(|purged| session.write_floor().map(|()| purged))
            .and_then(|purged| session.commit().map(|()| purged));
        match purged {
            Ok(BATCH) => self.purge_at = Instant::now(),
            Ok(_) => self.purge_at = Instant::now() + PURGE_EVERY,
            Err(error) => {
                if !connection.is_autocommit() {
                    // The next transaction cannot begin if this fails, and reopens.
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

/// What cannot be put right by asking again when a store is opened may be put right by an operator
/// while it runs.
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

fn fail<'t>(replies: impl Iterator<Item = &'t Reply>, error: &StoreError) {
    for reply in replies {
        reply.send(Err(error.clone()));
    }
}
