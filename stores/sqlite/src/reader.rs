//! The read connections, so that reads never wait for the writer.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;

use super::failure;
use super::file::{DatabaseFile, Identity};
use super::find::{FIND, FIND_REPLAY, FIND_STEPS, find, name};
use super::rows;
use super::schema;
use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::protocol::Record;

/// A connection that reads.
pub(super) struct Reader {
    pub(super) connection: Connection,
    identity: Identity,
}

/// How many connections that nobody reads on stay open.
const MOST_IDLE: usize = 16;

/// A small pool of read connections, opened on demand.
pub(super) struct Readers {
    file: Arc<DatabaseFile>,
    idle: Mutex<Vec<Reader>>,
}

impl Readers {
    pub(super) fn new(file: Arc<DatabaseFile>) -> Self {
        Self { file, idle: Mutex::default() }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Reader>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Closes all connections.
    pub(super) fn close(&self) {
        self.idle().clear();
    }

    /// Reads on a connection that nobody else reads on, without waiting for a lock. After an error, the
    /// writer may know better.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Reader) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        let path = self.file.path();
        let identity = self.file.opened_lately().ok_or_else(|| failure::gone(path))?;
        let idle = self.idle().pop();
        let reader = match idle {
            Some(reader) if reader.identity == identity => reader,
            Some(stale) => {
                schema::abandon(stale.connection);
                self.open(identity)?
            }
            None => self.open(identity)?,
        };
        let result = read(&reader);
        if result.as_ref().err().is_none_or(failure::is_busy) {
            let mut idle = self.idle();
            if idle.len() < MOST_IDLE {
                idle.push(reader);
            }
        }
        result.map_err(|error| failure::not_applied(path, error))
    }

    fn open(&self, identity: Identity) -> Result<Reader, StoreError> {
        let path = self.file.path();
        let connection = schema::open_reader(path).map_err(|error| failure::not_applied(path, error))?;
        if self.file.now() != Some(identity) {
            // The connection may be to either of the two files.
            schema::abandon(connection);
            return Err(failure::gone(path));
        }
        Ok(Reader { connection, identity })
    }
}

impl Reader {
    /// The record of a key, expired or not.
    pub(super) fn find(&self, key: &RecordKey) -> rows::Result<Option<Record>> {
        let mut statement = self.connection.prepare_cached(&FIND)?;
        let record = find(&mut statement, || self.connection.prepare_cached(&FIND_STEPS), key)?;
        Ok(record.map(|record| record.record))
    }

    /// What a claim needs of a record: for one with a result, only the columns of a replay.
    pub(super) fn find_for_claim(&self, key: &RecordKey) -> rows::Result<Option<Record>> {
        {
            let mut statement = self.connection.prepare_cached(&FIND_REPLAY)?;
            let mut rows = statement.query(name(key))?;
            let Some(row) = rows.next()? else { return Ok(None) };
            if let Some(record) = rows::read_replay(row)? {
                return Ok(Some(record));
            }
        }
        self.find(key)
    }
}
