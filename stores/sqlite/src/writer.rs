//! The only thread that writes. It commits all waiting operations in one transaction.

use std::sync::Arc;
use std::time::Instant;

use rusqlite::Connection;

use super::batch::Session;
use super::failure::{self, Reach};
use super::file::{DatabaseFile, abandon, log_path};
use super::queue::{Op, Outcome, Pace, Queue, Ticket};
use super::schema::{self, Opening, Purpose};
use idem_core::{StoreError, StoreErrorKind};

/// The state of the thread.
pub(super) struct Writer {
    queue: Arc<Queue>,
    file: Arc<DatabaseFile>,
    /// The purpose for which the writer opens the file again.
    purpose: Purpose,
    pace: Pace,
}

impl Writer {
    pub(super) fn new(queue: Arc<Queue>, file: Arc<DatabaseFile>, purpose: Purpose) -> Self {
        Self { queue, file, purpose, pace: Pace::default() }
    }

    /// Serves the queue until it is closed and empty.
    pub(super) fn run(mut self, connection: Connection) {
        let mut opened = Some(connection);
        while let Some(connection) = opened.take().or_else(|| self.reopened()) {
            self.serve(&connection);
            if self.file.now() == Some(self.file.opened()) {
                drop(connection);
            } else {
                abandon(connection);
            }
        }
    }

    /// Opens the file at the path when there is work; `None` if no work will come.
    fn reopened(&self) -> Option<Connection> {
        loop {
            match self.reopen(self.queue.wait(Pace::default())?) {
                Ok(connection) => return Some(connection),
                Err(error) => self.queue.fail_all(&error),
            }
        }
    }

    fn reopen(&self, until: Instant) -> Result<Connection, StoreError> {
        let path = self.file.path();
        if self.file.log_is_left() {
            return Err(failure::log_left(path, &log_path(path)));
        }
        let opening = Opening { purpose: self.purpose, layout: schema::LAYOUT, until };
        let (connection, identity) = schema::open(path, opening).map_err(|error| match error.kind() {
            // A retry may help, because an operator may repair the file while the store runs.
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
        while let Some(until) = self.queue.wait(self.pace) {
            if !self.work(&mut session, until) {
                return;
            }
        }
    }

    /// `None` if the path still leads to the file of this connection. Otherwise, whether the connection can
    /// be used again.
    fn moved(&self) -> Option<bool> {
        match self.file.now() {
            Some(identity) if identity == self.file.opened() => None,
            Some(_) => Some(false),
            None => {
                // The same file may come back, so the connection stays open.
                self.queue.fail_all(&failure::gone(self.file.path()));
                Some(true)
            }
        }
    }

    /// Runs one transaction for the waiting operations. Returns whether the connection can be used again.
    fn work(&mut self, session: &mut Session<'_>, until: Instant) -> bool {
        if let Some(is_usable) = self.moved() {
            return is_usable;
        }
        if let Err(error) = session.begin(until.saturating_duration_since(Instant::now())) {
            return self.not_begun(session, error);
        }
        let batch = self.queue.take();
        // Checked again, because the file may have gone while the transaction waited to begin.
        if self.file.now() != Some(self.file.opened()) {
            self.queue.put_back(batch);
            return self.moved() != Some(false) && session.roll_back();
        }
        let mut outcomes: Vec<Outcome> = Vec::with_capacity(batch.len());
        for ticket in &batch {
            match session.apply(&ticket.op) {
                Ok(outcome) => outcomes.push(outcome),
                Err(error) => return self.failed(session, batch, Some(outcomes.len()), error),
            }
        }
        let committing = Instant::now();
        if let Err(error) = session.commit() {
            return self.failed(session, batch, None, error);
        }
        let took = committing.elapsed();
        if self.file.now() != Some(self.file.opened()) {
            // The batch was written, but into a file that other processes may never see.
            let error = StoreError::outcome_unknown(format!(
                "the file {} was removed or replaced while it was written",
                self.file.path().display()
            ));
            outcomes.iter_mut().for_each(|outcome| *outcome = Err(error.clone()));
        }
        let operations = batch.len();
        let waiting = self.queue.finish(batch.into_iter().zip(outcomes));
        self.pace = Pace::after(took, operations + waiting);
        true
    }

    /// Handles a transaction that could not begin. Returns whether the connection can be used again.
    fn not_begun(&self, session: &Session<'_>, error: rusqlite::Error) -> bool {
        // Checks the path first, because an emptied file is not damage, and a lock of a file that was
        // replaced does not matter.
        if let Some(is_usable) = self.moved() {
            return is_usable && session.connection.is_autocommit();
        }
        let (reach, is_busy) = (failure::reach(&error), failure::is_busy(&error));
        let error = failure::not_applied_on(session.connection, self.file.path(), error);
        if is_busy {
            self.queue.fail_due(&error);
        } else {
            self.queue.fail_all(&error);
        }
        reach != Reach::Connection && session.connection.is_autocommit()
    }

    /// Handles a transaction that failed at the operation `culprit`, or at its commit (`None`). Returns
    /// whether the connection can be used again.
    fn failed(
        &self,
        session: &Session<'_>,
        batch: Vec<Ticket>,
        culprit: Option<usize>,
        error: rusqlite::Error,
    ) -> bool {
        let (reach, is_rolled_back) = (failure::reach(&error), session.roll_back());
        let is_not_applied =
            culprit.is_some() || is_rolled_back && failure::is_certainly_not_committed(&error);
        let error = if is_not_applied {
            failure::not_applied_on(session.connection, self.file.path(), error)
        } else {
            failure::outcome_unknown(self.file.path(), error)
        };
        match culprit {
            // The other operations are retried without this one.
            Some(culprit) if reach == Reach::Operation || matches!(batch[culprit].op, Op::Purge(_)) => {
                self.queue.retry_without(batch, culprit, error);
            }
            _ => {
                self.queue.finish(batch.into_iter().map(|ticket| (ticket, Err(error.clone()))));
            }
        }
        is_rolled_back && reach != Reach::Connection
    }
}

/// Operations without an answer fail when the thread ends, even after a panic.
impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.end();
    }
}
