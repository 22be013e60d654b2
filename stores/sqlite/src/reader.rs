//! The read connections, so that reads never wait for the writer.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use rusqlite::Connection;

use super::failure;
use super::file::{DatabaseFile, Identity};
use super::find;
use super::rows::{self, RowError};
use super::schema;
use super::{inspection, listing};
use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::inspection::Inspection;
use idem_core::listing::{List, Page};
use idem_core::protocol::Record;
use idem_store_kit::columns::Unreadable;

struct Reader {
    connection: Connection,
    identity: Identity,
    find: String,
    find_steps: String,
    find_replay: String,
}

/// A small pool of read connections, opened on demand.
pub(super) struct Readers {
    slots: Vec<Mutex<Option<Reader>>>,
    next: AtomicUsize,
}

impl Readers {
    /// A pool with about as many connections as threads can read at once.
    pub(super) fn new() -> Self {
        let count = std::thread::available_parallelism().map_or(4, |threads| threads.get().clamp(2, 16));
        Self { slots: (0..count).map(|_| Mutex::new(None)).collect(), next: AtomicUsize::new(0) }
    }

    /// The record of a key, expired or not, or what a claim needs of it: for a record with a result, only the columns of a replay. As all
    /// reads, `None` if it cannot read now: the writer can, or knows why not.
    pub(super) fn find(
        &self,
        file: &DatabaseFile,
        key: &RecordKey,
        is_for_claim: bool,
    ) -> Option<Result<Option<Record>, StoreError>> {
        let find = if is_for_claim { Reader::find_for_claim } else { Reader::find };
        let record = self.read(file, |reader| find(reader, key))?;
        Some(record.map_err(|column| column.error(key)))
    }

    /// One page of records.
    pub(super) fn list(&self, file: &DatabaseFile, request: &List) -> Option<Page> {
        self.read(file, |reader| Ok(listing::page(&reader.connection, request)?))?.ok()
    }

    /// The checks of the file.
    pub(super) fn inspect(&self, file: &DatabaseFile) -> Option<Inspection> {
        self.read(file, |reader| Ok(inspection::look(&reader.connection, file.path())?))?.ok()
    }

    /// Reads on a free connection. Fails with the name of an invalid column.
    fn read<T>(
        &self,
        file: &DatabaseFile,
        read: impl FnOnce(&mut Reader) -> Result<T, RowError>,
    ) -> Option<Result<T, Unreadable>> {
        let identity = file.opened_lately()?;
        let mut slot = self.slot()?;
        if slot.as_ref().is_some_and(|reader| reader.identity != identity)
            && let Some(stale) = slot.take()
        {
            schema::abandon(stale.connection);
        }
        if slot.is_none() {
            *slot = Some(Reader::open(file, identity)?);
        }
        match read(slot.as_mut()?) {
            Ok(record) => Some(Ok(record)),
            Err(RowError::Unreadable(column)) => Some(Err(column)),
            Err(RowError::Sqlite(error)) => {
                if !failure::is_busy(&error) {
                    *slot = None;
                }
                None
            }
        }
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
    fn open(file: &DatabaseFile, identity: Identity) -> Option<Self> {
        let connection = schema::open_reader(file.path()).ok()?;
        if file.now() != Some(identity) {
            // The connection may be to either of the two files.
            schema::abandon(connection);
            return None;
        }
        let (find, find_steps, find_replay) =
            (find::find_sql(), find::find_steps_sql(), find::find_replay_sql());
        Some(Self { connection, identity, find, find_steps, find_replay })
    }

    fn find_for_claim(&self, key: &RecordKey) -> Result<Option<Record>, RowError> {
        {
            let mut statement = self.connection.prepare_cached(&self.find_replay)?;
            let mut rows = statement.query(find::name(key))?;
            let Some(row) = rows.next()? else { return Ok(None) };
            if let Some(record) = rows::read_replay(row)? {
                return Ok(Some(record));
            }
        }
        self.find(key)
    }

    fn find(&self, key: &RecordKey) -> Result<Option<Record>, RowError> {
        let mut statement = self.connection.prepare_cached(&self.find)?;
        let record = find::find(&mut statement, || self.connection.prepare_cached(&self.find_steps), key)?;
        Ok(record.map(|record| record.record))
    }
}
