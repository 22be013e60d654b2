//! `PostgresStore`: one table of a database, any number of processes.
//!
//! Owns the public API. Below it, `builder` holds the settings, `layout` the tables, `statements` the SQL. The group commit of the
//! stores' kit holds operations that wait, and `server` says how a batch runs:
//! `claims`, `held_claims` (renewals, steps, results), `compare_and_swap` (releases, resolutions, reads) and `deletion`.
//! `transaction` records in a caller's transaction by way of a `driver`, `listing` and `inspection` answer operators, `rows` translates records.
//! `db` holds what the store and the `outbox` share: connections, errors, names of objects and migrations.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod claims;
mod compare_and_swap;
mod db;
mod deletion;
pub mod driver;
mod held_claims;
mod inspection;
mod layout;
mod listing;
#[cfg(feature = "outbox")]
pub mod outbox;
mod rows;
mod server;
mod setting;
mod statements;
mod transaction;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
// Not the runtime's, which a test may have paused.
use std::time::Instant;

use sqlx::PgPool;

pub use self::builder::PostgresStoreBuilder;
use self::setting::Setting;
use crate::db::source::Source;
use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::inspection::Inspection;
use idem_core::listing::{List, Page};
use idem_core::protocol::{
    self, Apply, Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Record, RecordStep, RecordStepAnswer,
    Release, ReleaseAnswer, Renew, RenewAnswer, Request, Resolution, ResolveAnswer, State, StoredResult,
    Timestamp,
};
use idem_core::support::hints::Hints;
use idem_core::support::own_runtime::apart;
use idem_core::{Store, Waiters};
use idem_store_kit::group_commit::{Answer, Op, Operation, Queues};

/// Keeps records in one table of a PostgreSQL database, version 12 or later.
///
/// An acknowledged operation is committed, and survives what the server's own commits survive: with its usual
/// settings (`fsync` and `synchronous_commit` on) a crash and a power cut. The clock is the server's.
///
/// Operations that wait at the same moment travel together in one statement and one commit; one that
/// comes alone is not delayed, and one that comes while many are on their way waits for those, at most 20
/// milliseconds. The store has connections of its own, at most
/// [`connections`](PostgresStoreBuilder::connections), opened when they are needed and closed when not,
/// in a runtime of its own: a caller whose runtime is blocked keeps its lease, and one store serves
/// several runtimes. A broken connection is opened again, and what was on it asked again, within the
/// [`operation_timeout`](PostgresStoreBuilder::operation_timeout).
///
/// The table is made when the first process connects (`idem_records`, with `idem_records_meta` beside
/// it); `idem_records_readable` is a view of it for people. Expired records stay until
/// [`purge`](Store::purge) is called: see `docs/stores/postgresql.md`.
///
/// A handle is cheap to clone. When the last one is dropped, what was asked is still done.
#[derive(Clone)]
pub struct PostgresStore(Arc<Inner>);

struct Inner {
    queues: Arc<Queues<Setting>>,
    /// Whether the table says that transactions of callers are in use.
    announced: AtomicBool,
    walking: listing::Walking,
    place: String,
    max_result_bytes: usize,
    /// Keys of which this process saw a result.
    hints: Hints,
    /// Keys that this process claimed or released: there is a record of them, most likely.
    seen: Hints,
    waiters: Waiters,
}

impl PostgresStore {
    /// Connects to the database of this URL, such as `postgres://user:password@host:5432/database`, with
    /// the settings a [`builder`](Self::builder) has at first.
    ///
    /// # Errors
    ///
    /// As [`PostgresStoreBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::builder(url).connect().await
    }

    /// Connects to the database of this pool, with connections of the store's own: the pool's live in the
    /// runtime they were opened in, and may all be in use.
    ///
    /// # Errors
    ///
    /// As [`PostgresStoreBuilder::connect`].
    pub async fn from_pool(pool: &PgPool) -> Result<Self, StoreError> {
        Self::builder_from_pool(pool).connect().await
    }

    /// Sets up how to connect to the database of this URL. Its parameters, such as `sslmode`, are
    /// [`sqlx::postgres::PgConnectOptions`]'s.
    ///
    /// The URL may name several servers, one primary and its replicas, and say by `target_session_attrs` which it needs:
    /// `read-write`, `primary`, or `any` if it is not there. The store uses the first that fits, and moves to another when
    /// the roles change:
    ///
    /// ```
    /// # use idem_postgres::PostgresStore;
    /// PostgresStore::builder("postgres://shop@db1:5432,db2:5432/shop?target_session_attrs=read-write");
    /// ```
    pub fn builder(url: &str) -> PostgresStoreBuilder {
        PostgresStoreBuilder::of_url(url)
    }

    /// Sets up how to connect to the database of this pool.
    pub fn builder_from_pool(pool: &PgPool) -> PostgresStoreBuilder {
        PostgresStoreBuilder::new(Ok(Source::of_pool(pool)))
    }

    /// Runs an operation, and repeats it if the answer was lost or the server was away for a moment.
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

    /// Applies a request to the record of a key.
    fn apply<R>(
        &self,
        key: &RecordKey,
        request: R,
        seems_new: bool,
    ) -> impl Future<Output = Result<R::Answer, StoreError>> + Send
    where
        R: Apply + Into<Request>,
        R::Answer: TryFrom<protocol::Answer>,
    {
        let fits = request.result().map_or(Ok(()), |result| self.check_size(result));
        let asked = fits.map(|()| Operation { seems_new, ..Operation::new(key, Op::Apply(request.into())) });
        self.ask(asked, |answer| match answer {
            Answer::Applied(answer) => answer.try_into().ok(),
            _ => None,
        })
    }

    fn check_size(&self, result: &StoredResult) -> Result<(), StoreError> {
        match result {
            StoredResult::Value(bytes) if bytes.len() > self.0.max_result_bytes => {
                Err(StoreError::too_large(bytes.len(), self.0.max_result_bytes))
            }
            _ => Ok(()),
        }
    }
}

impl Store for PostgresStore {
    async fn claim(&self, key: &RecordKey, request: &Claim) -> Result<ClaimAnswer, StoreError> {
        let (mark, begin) = (self.0.hints.mark(key), Instant::now());
        let mut is_there = self.0.seen.has(mark);
        if self.0.hints.expects_result(mark) {
            match self.get(key).await {
                Ok(Some(record)) if matches!(record.state, State::Completed | State::Failed) => {
                    self.0.hints.claimed(mark, true);
                    // It was alive by the server's clock, and no clock changes the answer.
                    let now = Timestamp::default();
                    return Ok(protocol::claim(Some(&record), Fence::default(), request, now).answer);
                }
                Ok(found) => is_there |= found.is_some(),
                Err(error) if begin.elapsed() > self.0.queues.server().connector.timeout() / 2 => {
                    return Err(error);
                }
                // The claim needs no reading.
                Err(_) => {}
            }
        }
        self.0.seen.put(mark);
        let answer = self.apply(key, request.clone(), !is_there).await?;
        self.0.hints.claimed(mark, matches!(answer, ClaimAnswer::Replay(_)));
        Ok(answer)
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
        // Boxed, so that the future of a call has no room for it while its body runs.
        let answer = Box::pin(self.apply(key, request.clone(), false)).await?;
        if answer == CompleteAnswer::Done {
            self.0.hints.put(self.0.hints.mark(key));
        }
        Ok(answer)
    }

    async fn release(&self, key: &RecordKey, request: &Release) -> Result<ReleaseAnswer, StoreError> {
        self.0.seen.put(self.0.hints.mark(key));
        self.apply(key, *request, false).await
    }

    async fn resolve(&self, key: &RecordKey, resolution: &Resolution) -> Result<ResolveAnswer, StoreError> {
        self.apply(key, resolution.clone(), false).await
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
        apart(async move {
            let setting = queues.server();
            deletion::purge(&setting.connector, &setting.statements, limit).await
        })
        .await
    }

    async fn list(&self, request: &List) -> Result<Page, StoreError> {
        let (queues, walking, request) = (self.0.queues.clone(), self.0.walking.clone(), request.clone());
        apart(async move { listing::list(queues.server(), &walking, &request).await }).await
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

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PostgresStore").field(&self.0.place).finish()
    }
}
