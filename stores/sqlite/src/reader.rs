//! The read connections, so that reads never wait for the writer.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

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

/// A small pool of read connections, opened on demand.
pub(super) struct Readers {
    file: Arc<DatabaseFile>,
    slots: Vec<Mutex<Option<Reader>>>,
    next: AtomicUsize,
}

impl Readers {
    /// A pool with about as many connections as threads can read at once.
    pub(super) fn new(file: Arc<DatabaseFile>) -> Self {
        let count = std::thread::available_parallelism().map_or(4, |threads| threads.get().clamp(2, 16));
        Self { file, slots: (0..count).map(|_| Mutex::new(None)).collect(), next: AtomicUsize::new(0) }
    }

    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Closes all connections.
    pub(super) fn close(&mut self) {
        self.slots.clear();
    }

    /// Reads on a free connection, without waiting for a lock. After an error, the writer may know better.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Reader) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        let path = self.file.path();
        let gone = || failure::gone(path);
        let identity = self.file.opened_lately().ok_or_else(gone)?;
        let mut slot = self.slot().ok_or_else(gone)?;
        if let Some(stale) = slot.take_if(|reader| reader.identity != identity) {
            schema::abandon(stale.connection);
        }
        let reader: &Reader = match slot.as_ref() {
            Some(reader) => reader,
            None => slot.insert(self.open(identity)?),
        };
        read(reader).map_err(|error| {
            if !failure::is_busy(&error) {
                *slot = None;
            }
            failure::not_applied(path, error)
        })
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

    /// A free connection, or one that will soon be free, because a read takes microseconds.
    fn slot(&self) -> Option<MutexGuard<'_, Option<Reader>>> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let (before, after) = self.slots.split_at(first % self.slots.len().max(1));
        for slot in after.iter().chain(before) {
            match slot.try_lock() {
                Ok(slot) => return Some(slot),
                Err(TryLockError::Poisoned(slot)) => return Some(slot.into_inner()),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        let slot = after.first()?;
        Some(slot.lock().unwrap_or_else(PoisonError::into_inner))
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
