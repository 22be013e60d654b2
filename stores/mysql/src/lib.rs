//! `MySqlStore`: one table of a MySQL or MariaDB database, any number of processes.
//!
//! Owns the public API. `builder` has the settings, `layout` the tables, `statements` the SQL. `server` says how the group commit runs a
//! batch: `change` decides and writes, `reading` only reads. `transaction` records in a caller's transaction. `deletion`, `listing` and
//! `inspection` serve operators, `rows` translates records. `db` has connections, errors, names of objects and the migration.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod change;
mod clock;
mod db;
mod deletion;
mod inspection;
mod layout;
mod listing;
mod reading;
mod rows;
mod server;
mod setting;
mod statements;
mod text;
mod transaction;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
// Not the runtime's, which a test may have paused.
use std::time::Instant;

use sqlx::MySqlPool;

pub use self::builder::MySqlStoreBuilder;
use self::setting::Setting;
use crate::db::connector::Source;
use idem_core::inspection::Inspection;
use idem_core::listing::{List, Page};
use idem_core::protocol::{
    self, Apply, Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Record, RecordStep, RecordStepAnswer,
    Release, ReleaseAnswer, Renew, RenewAnswer, Request, Resolution, ResolveAnswer, State, StoredResult,
    Timestamp,
};
use idem_core::support::hints::Hints;
use idem_core::support::own_runtime::apart;
use idem_core::{RecordKey, Store, StoreError, Waiters};
use idem_store_kit::group_commit::{Answer, Op, Operation, Queues};

/// Keeps records in one table of a MySQL database, version 8.0 or later, or of a MariaDB database, version 10.6 or later.
///
/// An acknowledged operation is committed, and survives what the server's own commits survive: with its usual
/// settings (`innodb_flush_log_at_trx_commit = 1`) a crash and a power cut. The clock is the server's, in UTC; time
/// zones do not matter, neither the server's nor a session's.
///
/// Operations that wait at the same moment share statements; an operation that comes alone is not delayed. The
/// store has connections of its own, at most [`connections`](MySqlStoreBuilder::connections), opened when they are
/// needed and closed when not. They live in a runtime of its own: a caller whose runtime is blocked keeps its lease, and one
/// store serves several runtimes. Operations that come alone use one more connection, in their caller's runtime, which
/// must have tokio's network. The store replaces a broken connection, and repeats the operations that were on it, within the
/// [`operation_timeout`](MySqlStoreBuilder::operation_timeout). It changes no session settings, so it works through a
/// pooler that shares sessions between its clients.
///
/// The first process that connects creates the tables: `idem_records`, `idem_records_steps` and
/// `idem_records_meta`. Expired records stay until [`purge`](Store::purge) is called: see
/// `docs/operations.md`.
///
/// A handle is cheap to clone. When the last one is dropped, operations that were begun are still done.
#[derive(Clone)]
pub struct MySqlStore(Arc<Inner>);

struct Inner {
    queues: Arc<Queues<Setting>>,
    place: String,
    max_result_bytes: usize,
    hints: Hints,
    waiters: Waiters,
    /// Whether this process has marked in the table that callers use transactions.
    announced: AtomicBool,
}

impl MySqlStore {
    /// Connects to the database of this URL, such as `mysql://user:password@host:3306/database`, with
    /// the default settings of a [`builder`](Self::builder).
    ///
    /// # Errors
    ///
    /// As [`MySqlStoreBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::builder(url).connect().await
    }

    /// Connects to the database of this pool, with connections of the store's own: the pool's live in the
    /// runtime they were opened in, and may all be in use.
    ///
    /// # Errors
    ///
    /// As [`MySqlStoreBuilder::connect`].
    pub async fn from_pool(pool: &MySqlPool) -> Result<Self, StoreError> {
        Self::builder_from_pool(pool).connect().await
    }

    /// Sets up how to connect to the database of this URL. Its parameters, such as `ssl-mode`, are
    /// [`sqlx::mysql::MySqlConnectOptions`]'s.
    pub fn builder(url: &str) -> MySqlStoreBuilder {
        MySqlStoreBuilder::new(Source::of_url(url))
    }

    /// Sets up how to connect to the database of this pool.
    pub fn builder_from_pool(pool: &MySqlPool) -> MySqlStoreBuilder {
        MySqlStoreBuilder::new(Ok(Source::of_pool(pool)))
    }

    /// Runs an operation, and repeats it if the answer was lost or the server was unreachable for a moment.
    fn ask<A>(
        &self,
        operation: Result<Operation, StoreError>,
        answer: impl FnOnce(Answer) -> Option<A> + Send,
    ) -> impl Future<Output = Result<A, StoreError>> + Send {
        let asked = operation.map(|operation| self.0.queues.ask(operation));
        async move {
            let given = asked?.await?;
            answer(given).ok_or_else(|| StoreError::outcome_unknown("the answer was to something else"))
        }
    }

    fn check_size(&self, result: &StoredResult) -> Result<(), StoreError> {
        match result {
            StoredResult::Value(bytes) if bytes.len() > self.0.max_result_bytes => {
                Err(StoreError::too_large(bytes.len(), self.0.max_result_bytes))
            }
            _ => Ok(()),
        }
    }

    /// Applies a request to the record of a key.
    fn apply<R>(
        &self,
        key: &RecordKey,
        request: R,
    ) -> impl Future<Output = Result<R::Answer, StoreError>> + Send
    where
        R: Apply + Into<Request>,
        R::Answer: TryFrom<protocol::Answer>,
    {
        let fits = request.result().map_or(Ok(()), |result| self.check_size(result));
        let asked = fits.map(|()| Operation::new(key, Op::Apply(request.into())));
        self.ask(asked, |answer| match answer {
            Answer::Applied(answer) => answer.try_into().ok(),
            _ => None,
        })
    }
}

impl Store for MySqlStore {
    async fn claim(&self, key: &RecordKey, request: &Claim) -> Result<ClaimAnswer, StoreError> {
        let (mark, begin) = (self.0.hints.mark(key), Instant::now());
        if self.0.hints.expects_result(mark) {
            match self.get(key).await {
                Ok(Some(record)) if matches!(record.state, State::Completed | State::Failed) => {
                    self.0.hints.claimed(mark, true);
                    // `get` returned it, so it was alive by the server's clock. The answer for a result does not depend on the time.
                    let now = Timestamp::default();
                    return Ok(protocol::claim(Some(&record), Fence::default(), request, now).answer);
                }
                Ok(_) => {}
                Err(error) if begin.elapsed() > self.0.queues.server().connector.timeout / 2 => {
                    return Err(error);
                }
                // The claim needs no reading.
                Err(_) => {}
            }
        }
        let answer = self.apply(key, request.clone()).await?;
        self.0.hints.claimed(mark, matches!(answer, ClaimAnswer::Replay(_)));
        Ok(answer)
    }

    async fn renew(&self, key: &RecordKey, request: &Renew) -> Result<RenewAnswer, StoreError> {
        self.apply(key, *request).await
    }

    async fn record_step(
        &self,
        key: &RecordKey,
        request: &RecordStep,
    ) -> Result<RecordStepAnswer, StoreError> {
        let stepped = &self.0.queues.server().stepped;
        stepped.put(stepped.mark(key));
        self.apply(key, request.clone()).await
    }

    async fn complete(&self, key: &RecordKey, request: &Complete) -> Result<CompleteAnswer, StoreError> {
        // Boxed, so that the future of a call has no room for it while its body runs.
        let answer = Box::pin(self.apply(key, request.clone())).await?;
        if answer == CompleteAnswer::Done {
            self.0.hints.put(self.0.hints.mark(key));
        }
        Ok(answer)
    }

    async fn release(&self, key: &RecordKey, request: &Release) -> Result<ReleaseAnswer, StoreError> {
        self.apply(key, *request).await
    }

    async fn resolve(&self, key: &RecordKey, resolution: &Resolution) -> Result<ResolveAnswer, StoreError> {
        self.apply(key, resolution.clone()).await
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        self.ask(Ok(Operation::new(key, Op::Forget)), |answer| match answer {
            Answer::Forgotten(was_live) => Some(was_live),
            _ => None,
        })
        .await
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        self.ask(Ok(Operation::new(key, Op::Get)), |answer| match answer {
            Answer::Found(record) => Some(record.map(|record| *record)),
            _ => None,
        })
        .await
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        let queues = self.0.queues.clone();
        apart(async move { deletion::purge(queues.server(), limit).await }).await
    }

    async fn list(&self, request: &List) -> Result<Page, StoreError> {
        let (queues, request) = (self.0.queues.clone(), request.clone());
        apart(async move { listing::list(queues.server(), &request).await }).await
    }

    async fn inspect(&self) -> Result<Inspection, StoreError> {
        let queues = self.0.queues.clone();
        apart(async move { inspection::look(&queues.server().connector).await }).await
    }

    fn max_result_bytes(&self) -> Option<usize> {
        Some(self.0.max_result_bytes)
    }

    fn waiters(&self) -> &Waiters {
        &self.0.waiters
    }
}

impl fmt::Debug for MySqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MySqlStore").field(&self.0.place).finish()
    }
}
