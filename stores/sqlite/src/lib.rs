//! `SqliteStore`: one file, several processes of one host.
//!
//! Owns the public face. Below it, `builder` sets a store up, `schema` opens a file, `file` knows
//! whether it is still there, `queue` holds what waits, `writer` commits it in `batch`es, `reader`
//! answers what needs no writing, `find` has the statements of both, `rows` translates, `clock` is the
//! host's, and `failure` says what went wrong.

mod batch;
mod builder;
mod clock;
mod failure;
mod file;
mod find;
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
use idem_core::protocol::{
    self, Apply, Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Record, RecordStep, RecordStepAnswer,
    Release, ReleaseAnswer, Renew, RenewAnswer, Request, Resolution, ResolveAnswer, StoredResult,
};
use idem_core::{Store, Waiters};

/// How many records a transaction of [`Store::purge`] deletes.
const PURGE_BATCH: usize = 512;

/// Keeps records in one SQLite file, which any number of processes of one host may share.
///
/// Every acknowledged operation is on disk: it survives `kill -9` and a power cut (write-ahead log,
/// `synchronous=FULL`). One thread writes, and commits all operations that wait in one transaction,
/// so that a flush to disk is shared; replays are read on connections of their own and never wait
/// for a writer, of this process or another.
///
/// The clock is the host's system clock. The file must be on a disk of that host: network file
/// systems do not keep SQLite's locks.
///
/// The store deletes expired records in small batches and reuses their space. The
/// file is for nothing else: it is refused if it holds tables of another program. It can be looked
/// at, also while it is in use, with the `sqlite3` tool (tables `idem_records` and `idem_steps`). To copy it, use that
/// tool's `.backup`; to move it, end its processes first. A process that has it open must not open
/// it as a plain file too: on Unix, closing that would end SQLite's locks. Never delete the `-wal`
/// file beside it: it holds the newest operations.
///
/// If the file is removed or replaced while it is in use, operations fail until it is back, or until
/// another database of idem is in its place without the log of the one before; the store creates nothing
/// meanwhile. A process that opens a file cannot tell whose log lies beside it: to restore a backup, end all
/// processes and move `-wal` and `-shm` away first.
///
/// A handle is cheap to clone. When the last one is dropped, what was asked is done, which blocks
/// for a flush to disk, or at most for the busy timeout if another program holds a lock.
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
    /// `None` only while it is dropped, so that readers close before the writer does.
    readers: Option<Readers>,
    busy_timeout: Duration,
    max_result_bytes: usize,
    waiters: Waiters,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl SqliteStore {
    /// Opens the file at `path` with the settings a [`builder`](Self::builder) has at first.
    ///
    /// # Errors
    ///
    /// As [`SqliteStoreBuilder::open`], and it blocks as that does.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::builder(path).open()
    }

    /// Sets up how to open the file at `path`.
    pub fn builder(path: impl AsRef<Path>) -> SqliteStoreBuilder {
        SqliteStoreBuilder::new(path.as_ref())
    }

    /// What a reader finds for a key by `find`, if it can say.
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

    /// Has the writer carry out an operation.
    async fn write<A>(&self, op: Op, answer: impl FnOnce(Answer) -> Option<A>) -> Result<A, StoreError> {
        let outcome = self.0.queue.submit(op, self.0.busy_timeout).await;
        match outcome {
            Ok(Ok(given)) => answer(given).ok_or_else(ended),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(ended()),
        }
    }

    /// Has the writer apply a request to the record of a key.
    async fn apply<R>(&self, key: &RecordKey, request: R, seems_new: bool) -> Result<R::Answer, StoreError>
    where
        R: Apply + Into<Request>,
        R::Answer: TryFrom<protocol::Answer>,
    {
        let most = self.0.max_result_bytes;
        if let Some(StoredResult::Value(bytes)) = request.result()
            && bytes.len() > most
        {
            return Err(StoreError::too_large(bytes.len(), most));
        }
        let applying = Applying { key: key.clone(), request: request.into(), seems_new };
        self.write(Op::Apply(applying), |answer| match answer {
            Answer::Applied(answer) => answer.try_into().ok(),
            _ => None,
        })
        .await
    }
}

fn ended() -> StoreError {
    StoreError::outcome_unknown("the thread that writes to the file ended; open the store again")
}

impl Store for SqliteStore {
    async fn claim(&self, key: &RecordKey, request: &Claim) -> Result<ClaimAnswer, StoreError> {
        let found = self.read(key, Readers::find_for_claim).transpose()?;
        if let Some(Some(record)) = &found {
            let step = protocol::claim(Some(record), Fence::default(), request, clock::now());
            if step.write.is_none() {
                return Ok(step.answer);
            }
        }
        self.apply(key, request.clone(), matches!(found, Some(None))).await
    }

    async fn renew(&self, key: &RecordKey, request: &Renew) -> Result<RenewAnswer, StoreError> {
        self.apply(key, *request, false).await
    }

    async fn record_step(
        &self,
        key: &RecordKey,
        request: &RecordStep,
    ) -> Result<RecordStepAnswer, StoreError> {
        self.apply(key, request.clone(), false).await
    }

    async fn complete(&self, key: &RecordKey, request: &Complete) -> Result<CompleteAnswer, StoreError> {
        self.apply(key, request.clone(), false).await
    }

    async fn release(&self, key: &RecordKey, request: &Release) -> Result<ReleaseAnswer, StoreError> {
        self.apply(key, *request, false).await
    }

    async fn resolve(&self, key: &RecordKey, resolution: &Resolution) -> Result<ResolveAnswer, StoreError> {
        self.apply(key, resolution.clone(), false).await
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
                    Answer::Purge(answer) => Some(answer),
                    _ => None,
                })
                .await?;
            purged += now;
            if now < most {
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
        // The writer knows why it cannot be read.
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
        // An answer may drop the last handle on the thread that gives it, which then ends by itself.
        let current = std::thread::current().id();
        if threads.iter().any(|thread| thread.thread().id() == current) {
            return;
        }
        for thread in threads {
            // It panicked, if at all, where nobody can be told.
            let _ = thread.join();
        }
    }
}
