//! Opening a store: its settings, their limits, and its thread. The only operation that this module knows is
//! the purge.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::file::DatabaseFile;
use super::queue::{Op, PURGE_BATCH, Queue};
use super::schema::{self, Opening, Purpose};
use super::writer::Writer;
use super::{Inner, SqliteStore};
use idem_core::{StoreError, Waiters};
use idem_store_kit::limits;
use idem_store_kit::purging::Purging;

/// Upper limit of `max_result_bytes`: a row in SQLite has at most 1,000,000,000 bytes, and is larger than its
/// result.
const LARGEST_MAX_RESULT_BYTES: usize = 1_000_000_000 - 16 * 1024;
/// The approximate interval between deletions of expired records.
const PURGE_EVERY: Duration = Duration::from_secs(5);

/// The settings for opening a [`SqliteStore`].
#[derive(Clone, Debug)]
#[must_use]
pub struct SqliteStoreBuilder {
    path: PathBuf,
    busy_timeout: Duration,
    max_result_bytes: usize,
    must_exist: bool,
}

impl SqliteStoreBuilder {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            busy_timeout: limits::OPERATION_TIMEOUT,
            max_result_bytes: limits::MAX_RESULT_BYTES,
            must_exist: false,
        }
    }

    /// Opens only an existing file with the current layout, and refuses a missing file or an older layout.
    /// Nothing is created, migrated or purged. This is for tools that examine the file of a program that uses
    /// idem.
    pub const fn must_exist(mut self) -> Self {
        self.must_exist = true;
        self
    }

    /// How long an operation waits for a lock of another program, from 1 millisecond to 1 hour; 5 seconds
    /// unless set. The operation fails soon after that time.
    pub const fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout;
        self
    }

    /// The largest result that is stored, in bytes, up to about 1,000,000,000; 16 MiB unless set.
    pub const fn max_result_bytes(mut self, bytes: usize) -> Self {
        self.max_result_bytes = bytes;
        self
    }

    /// Opens the file, and creates it if it is missing; its folder must exist.
    ///
    /// This method blocks the thread for some file operations, and up to the busy timeout if another program
    /// holds a lock.
    ///
    /// # Errors
    ///
    /// - [`Configuration`](idem_core::StoreErrorKind::Configuration): a setting is out of its range, the path
    ///   is not valid or leads to something other than a file, the file belongs to another program or a newer
    ///   version, or its disk allows no write-ahead log. With [`must_exist`](Self::must_exist), also: the
    ///   file is missing or has an older layout.
    /// - [`Unavailable`](idem_core::StoreErrorKind::Unavailable): the file cannot be opened, created or
    ///   written now, or it stays locked.
    /// - [`CorruptRecord`](idem_core::StoreErrorKind::CorruptRecord): the file is damaged.
    ///
    /// The store does not change a file that is damaged, or that belongs to another program or a newer
    /// version.
    pub fn open(self) -> Result<SqliteStore, StoreError> {
        self.check().map_err(StoreError::configuration)?;
        let path = std::path::absolute(&self.path).map_err(|error| {
            StoreError::configuration("the path of the database is empty; give the path of a file")
                .with_source(error)
        })?;
        let purpose = if self.must_exist { Purpose::Examine } else { Purpose::Use };
        let until = Instant::now() + self.busy_timeout;
        let opening = Opening { purpose, layout: schema::LAYOUT, until };
        let (connection, identity) = schema::open(&path, opening)?;
        self.start(DatabaseFile::new(path, identity), connection)
    }

    pub(super) fn start(
        &self,
        file: DatabaseFile,
        connection: Connection,
    ) -> Result<SqliteStore, StoreError> {
        let file = Arc::new(file);
        let queue = Arc::new(Queue::new(self.busy_timeout));
        let again = if self.must_exist { Purpose::Examine } else { Purpose::UseAgain };
        let writer = Writer::new(queue.clone(), file.clone(), again);
        let thread = std::thread::Builder::new().name("idem-sqlite".to_owned());
        let thread = thread.spawn(move || writer.run(connection)).map_err(|error| {
            StoreError::unavailable("the system has no thread left for the store").with_source(error)
        })?;
        if !self.must_exist {
            // Purges at once, because the program may end before the first regular purge. Nobody waits for
            // the answer.
            drop(queue.submit(Op::Purge(PURGE_BATCH)));
        }
        let purge = |queue: Arc<Queue>, limit| async move { queue.purge(limit).await };
        let purging = Purging::start(&queue, (!self.must_exist).then_some(PURGE_EVERY), purge);
        let inner = Inner {
            queue,
            file,
            max_result_bytes: self.max_result_bytes,
            waiters: Waiters::default(),
            purging,
            thread: Some(thread),
        };
        Ok(SqliteStore(Arc::new(inner)))
    }

    fn check(&self) -> Result<(), String> {
        limits::check_time("busy_timeout", self.busy_timeout, Duration::from_millis(1))?;
        limits::check_number("max_result_bytes", self.max_result_bytes, LARGEST_MAX_RESULT_BYTES)
    }
}
