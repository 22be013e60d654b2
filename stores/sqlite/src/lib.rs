//! `SqliteStore`: a store in one file, for several processes of one host.
//!
//! Owns the public API, and the clock. A claim first reads the record of its key here, on a connection of
//! `file`. If it must write, it waits in the `queue` until the `writer` commits it, in one `batch` with all
//! waiting operations. `rows` finds records and converts them. `builder` sets a store up, `schema` opens a
//! file, `file` knows whether the file is still there, and `failure` says what errors mean.

mod batch;
mod builder;
mod failure;
mod file;
mod inspection;
mod listing;
mod queue;
mod rows;
mod schema;
#[cfg(test)]
mod tests;
mod writer;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::SystemTime;

pub use self::builder::SqliteStoreBuilder;
use self::file::DatabaseFile;
use self::queue::{Answer, Op, Queue, ended};
use self::rows::{Steps, for_key};
use idem_core::inspection::Inspection;
use idem_core::listing::{List, Page};
use idem_core::protocol::{self, Fence, Record, Request, Timestamp};
use idem_core::{RecordKey, Store, StoreError, Waiters};
use idem_store_kit::purging::Purging;
use rusqlite::Connection;

/// Keeps records in one SQLite file. Any number of processes of one host may share it.
///
/// Every acknowledged operation is on disk: it survives `kill -9` and a power cut (write-ahead log,
/// `synchronous=FULL`). One thread writes, and commits all waiting operations in one transaction, so that
/// they share one flush to disk. Replays are read on separate connections and never wait for a writer of this
/// or another process.
///
/// The clock is the host's system clock. The file must be on a disk of that host, because network file
/// systems do not keep SQLite's locks.
///
/// The store deletes expired records when it opens the file and about every 5 seconds, and reuses their
/// space. Nothing needs to call `purge`.
///
/// The store refuses a file that another program made. Do not use the store's file for anything else. You can
/// read this file with the `sqlite3` tool, even while it is in use (tables `idem_records` and `idem_steps`).
/// To copy the file, use that tool's `.backup`. To move the file, first end the processes that use it. Never
/// delete the `-wal` file beside the database, because the `-wal` file has the newest operations.
///
/// A process that uses the store must not also open the file as a regular file. On Unix, closing this regular
/// file would end SQLite's locks.
///
/// If the file is removed or replaced while it is in use, operations fail until the file is back. They also
/// succeed again if another database of idem is in its place, without the log of the previous file. The store
/// creates nothing meanwhile. A process that opens a file cannot know to which file the log beside it
/// belongs. So before you restore a backup, end all processes and move `-wal` and `-shm` away.
///
/// A handle is cheap to clone. Dropping the last handle finishes the waiting operations, except claims whose
/// callers are gone. The drop blocks for a flush to disk, or at most for the busy timeout if another program
/// holds a lock.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir().join(format!("idem-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("idem.db");
/// let store = idem_sqlite::SqliteStore::open(&path)?;
/// # drop(store);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SqliteStore(Arc<Inner>);

struct Inner {
    queue: Arc<Queue>,
    file: Arc<DatabaseFile>,
    max_result_bytes: usize,
    waiters: Waiters,
    purging: Option<Purging>,
    /// The writer's thread. `None` only during the drop.
    thread: Option<JoinHandle<()>>,
}

impl SqliteStore {
    /// Opens the file at `path` with the default settings of a [`builder`](Self::builder).
    ///
    /// # Errors
    ///
    /// As [`SqliteStoreBuilder::open`]. This method also blocks in the same way.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::builder(path).open()
    }

    /// Sets up how to open the file at `path`.
    pub fn builder(path: impl AsRef<Path>) -> SqliteStoreBuilder {
        SqliteStoreBuilder::new(path.as_ref())
    }

    /// Reads without the writer. If the read fails, sends an empty purge to the writer, and then reads again.
    /// To answer the purge, the writer opens the file again if it was replaced. If the writer cannot open it,
    /// the read returns the writer's error.
    async fn read<T>(&self, read: impl Fn(&Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        if let Ok(value) = self.0.file.read(&read) {
            return Ok(value);
        }
        self.0.queue.run(Op::Purge(0)).await?;
        self.0.file.read(&read)
    }
}

impl Store for SqliteStore {
    #[expect(clippy::manual_async_fn, reason = "an `async fn` has each argument in its future twice")]
    fn apply(
        &self,
        key: &RecordKey,
        request: Request,
    ) -> impl Future<Output = Result<protocol::Answer, StoreError>> + Send {
        async move {
            request.check_size(self.0.max_result_bytes)?;
            if let Request::Claim(claim) = &request
                && let Ok(record) = self.0.file.read(|reader| for_key(rows::find_for_claim(reader, key), key))
                && let Some(record) = record?
            {
                let transition = protocol::claim(Some(&record), Fence::default(), claim, now());
                if transition.write.is_none() {
                    return Ok(transition.answer.into());
                }
            }
            match self.0.queue.run(Op::Apply(key.clone(), request)).await? {
                Answer::Applied(answer) => Ok(answer),
                _ => Err(ended()),
            }
        }
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        match self.0.queue.run(Op::Forget(key.clone())).await? {
            Answer::Forgotten(was_live) => Ok(was_live),
            _ => Err(ended()),
        }
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        let stored = self.read(|reader| for_key(rows::find(reader, key, Steps::All), key)).await??;
        Ok(stored.map(|stored| stored.record).filter(|record| protocol::is_live(record, now())))
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        self.0.queue.purge(limit).await
    }

    async fn list(&self, request: &List) -> Result<Page, StoreError> {
        self.read(|reader| listing::page(reader, request)).await
    }

    async fn inspect(&self) -> Result<Inspection, StoreError> {
        self.read(|reader| inspection::look(reader, self.0.file.path())).await
    }

    fn max_result_bytes(&self) -> Option<usize> {
        Some(self.0.max_result_bytes)
    }

    fn waiters(&self) -> &Waiters {
        &self.0.waiters
    }
}

/// The time for leases and expiry, by the system clock of the host. All processes that use the file share
/// this clock.
fn now() -> Timestamp {
    Timestamp::default().after(SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default())
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SqliteStore").field(&self.0.file.path()).finish()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.purging = None;
        // The readers are closed first, so that the writer is the last to close the file.
        self.file.close_readers();
        self.queue.close();
        // If an answer drops the last handle, this drop may run on the writer's own thread, which sends the
        // answers. That thread cannot wait for itself, and ends by itself.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // If the thread panicked, nobody can receive the report.
            let _ = thread.join();
        }
    }
}
