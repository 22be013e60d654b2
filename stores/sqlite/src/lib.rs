//! `SqliteStore`: a store in one file, for several processes of one host.
//!
//! Owns the public API. `builder` sets a store up, `schema` opens a file, and `file` knows whether it is still there.
//! `queue` has the waiting operations, `writer` commits them in `batch`es, and `reader` answers operations that write
//! nothing. `find` has the statements of both, `rows` converts records to rows and back, `clock` is the host's clock,
//! and `failure` translates errors.

mod batch;
mod builder;
mod clock;
mod failure;
mod file;
mod find;
mod held;
mod inspection;
mod listing;
mod queue;
mod reader;
mod rows;
mod schema;
#[cfg(test)]
mod tests;
mod writer;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

pub use self::builder::SqliteStoreBuilder;
use self::file::DatabaseFile;
use self::queue::{Answer, Applying, Op, Queue};
use self::reader::{Miss, Readers};
use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::inspection::Inspection;
use idem_core::listing::{List, Page};
use idem_core::protocol::{self, Fence, Record, Request};
use idem_core::{Store, Waiters};

/// How many records a transaction of [`Store::purge`] deletes.
const PURGE_BATCH: usize = 512;

/// Keeps records in one SQLite file. Any number of processes of one host may share it.
///
/// Every acknowledged operation is on disk: it survives `kill -9` and a power cut (write-ahead log,
/// `synchronous=FULL`). One thread writes, and commits all waiting operations in one transaction, so that they share
/// one flush to disk. Replays are read on separate connections and never wait for a writer of this or another process.
///
/// The clock is the host's system clock. The file must be on a disk of that host: network file
/// systems do not keep SQLite's locks.
///
/// The store deletes expired records in small batches and reuses their space. Do not use the file for anything else: a
/// file with tables of another program is refused. You can read it with the `sqlite3` tool, also while it is in use
/// (tables `idem_records` and `idem_steps`). To copy it, use that tool's `.backup`; to move it, end its processes
/// first. A process that uses the store must not open the file as a regular file too: on Unix, closing that would end
/// SQLite's locks. Never delete the `-wal` file beside it: it has the newest operations.
///
/// If the file is removed or replaced while it is in use, operations fail until it is back, or until another database
/// of idem is in its place without the log of the previous file. The store creates nothing meanwhile. A process that
/// opens a file cannot know to which file the log beside it belongs: to restore a backup, end all processes and move
/// `-wal` and `-shm` away first.
///
/// A handle is cheap to clone. Dropping the last handle finishes the waiting operations. That blocks for a flush to
/// disk, or at most for the busy timeout if another program holds a lock.
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
    file: Arc<DatabaseFile>,
    queue: Arc<Queue>,
    /// `None` only during the drop, so that the readers close before the writer.
    readers: Option<Readers>,
    busy_timeout: Duration,
    max_result_bytes: usize,
    waiters: Waiters,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl SqliteStore {
    /// Opens the file at `path` with the default settings of a [`builder`](Self::builder).
    ///
    /// # Errors
    ///
    /// As [`SqliteStoreBuilder::open`]. It also blocks in the same way.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::builder(path).open()
    }

    /// Sets up how to open the file at `path`.
    pub fn builder(path: impl AsRef<Path>) -> SqliteStoreBuilder {
        SqliteStoreBuilder::new(path.as_ref())
    }

    /// The result of `find` by a reader; `None` if the writer must answer.
    fn read(
        &self,
        key: &RecordKey,
        find: fn(&Readers, &DatabaseFile, &RecordKey) -> Result<Option<Record>, Miss>,
    ) -> Option<Result<Option<Record>, StoreError>> {
        match find(self.0.readers.as_ref()?, &self.0.file, key) {
            Ok(record) => Some(Ok(record)),
            Err(Miss::Failed(error)) => Some(Err(error)),
            Err(Miss::AskWriter) => None,
        }
    }

    /// Lets the writer execute an operation.
    async fn write<A>(&self, op: Op, answer: impl FnOnce(Answer) -> Option<A>) -> Result<A, StoreError> {
        let outcome = self.0.queue.submit(op, self.0.busy_timeout).await;
        match outcome {
            Ok(Ok(given)) => answer(given).ok_or_else(ended),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(ended()),
        }
    }
}

fn ended() -> StoreError {
    StoreError::outcome_unknown("the thread that writes to the file ended; open the store again")
}

impl Store for SqliteStore {
    async fn apply(&self, key: &RecordKey, request: Request) -> Result<protocol::Answer, StoreError> {
        request.check_size(self.0.max_result_bytes)?;
        let mut seems_new = false;
        if let Request::Claim(_) = &request {
            match self.read(key, Readers::find_for_claim).transpose()? {
                Some(Some(record)) => {
                    let found = protocol::apply(Some(&record), Fence::default(), &request, clock::now());
                    if found.write.is_none() {
                        return Ok(found.answer);
                    }
                }
                found => seems_new = found.is_some(),
            }
        }
        let applying = Applying { key: key.clone(), request, seems_new };
        self.write(Op::Apply(applying), |answer| match answer {
            Answer::Applied(answer) => Some(answer),
            _ => None,
        })
        .await
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        self.write(Op::Forget(key.clone()), |answer| match answer {
            Answer::Forget(answer) => Some(answer),
            _ => None,
        })
        .await
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        if let Some(found) = self.read(key, Readers::find) {
            return Ok(found?.filter(|record| protocol::is_live(record, clock::now())));
        }
        self.write(Op::Get(key.clone()), |answer| match answer {
            Answer::Get(answer) => Some(answer),
            _ => None,
        })
        .await
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        let mut purged = 0;
        while purged < limit {
            let most = PURGE_BATCH.min(limit - purged);
            let now = self
                .write(Op::Purge(most), |answer| match answer {
                    Answer::Purged(answer) => Some(answer),
                    _ => None,
                })
                .await?;
            purged += now.count;
            if now.all {
                break;
            }
        }
        Ok(purged)
    }

    async fn list(&self, request: &List) -> Result<Page, StoreError> {
        if let Some(readers) = &self.0.readers
            && let Some(page) = readers.list(&self.0.file, request)
        {
            return Ok(page);
        }
        self.write(Op::List(request.clone()), |answer| match answer {
            Answer::List(page) => Some(page),
            _ => None,
        })
        .await
    }

    async fn inspect(&self) -> Result<Inspection, StoreError> {
        let found = self.0.readers.as_ref().and_then(|readers| readers.inspect(&self.0.file));
        // If no reader can read the file, the writer's error says why.
        match found {
            Some(found) => Ok(found),
            None => {
                self.write(Op::Purge(0), Some).await?;
                Err(StoreError::unavailable("the file is in use; ask again"))
            }
        }
    }

    fn max_result_bytes(&self) -> Option<usize> {
        Some(self.0.max_result_bytes)
    }

    fn waiters(&self) -> &Waiters {
        &self.0.waiters
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SqliteStore").field(&self.0.file.path()).finish()
    }
}

impl Inner {
    fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), StoreError> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(|error| {
            StoreError::unavailable("the system has no thread left for the store").with_source(error)
        })?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.readers = None;
        self.queue.close();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        // If an answer drops the last handle, this may run on the thread that sent the answer. That thread then ends by
        // itself.
        let current = std::thread::current().id();
        if threads.iter().any(|thread| thread.thread().id() == current) {
            return;
        }
        for thread in threads {
            // If the thread panicked, nobody is left to report it to.
            let _ = thread.join();
        }
    }
}
