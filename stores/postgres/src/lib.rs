//! `PostgresStore`: one table of a database, any number of processes.
//!
//! Owns the public API. Below it, `builder` holds the settings, `layout` the tables, `statements` the SQL, `operation` what
//! can be asked. `queue` and its `backlog` hold operations that wait; a `worker` with a connection of its own runs them:
//! `claims`, `held_claims` (renewals, steps, results), `compare_and_swap` (releases, resolutions, reads) and `deletion`.
//! `transaction` records in a caller's transaction by way of a `driver`, `listing` and `inspection` answer operators, `rows` translates records.
//! `db` holds what the store and the `outbox` share: connections, errors, names of objects and migrations.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod backlog;
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
mod operation;
#[cfg(feature = "outbox")]
pub mod outbox;
mod queue;
mod rows;
mod statements;
mod transaction;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
// Not the runtime's, which a test may have paused.
use std::time::Instant;

use sqlx::PgPool;

pub use self::builder::PostgresStoreBuilder;
use self::operation::{Answer, Op, Operation};
use self::queue::Queues;
use crate::db::source::Source;
use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::inspection::Inspection;
use idem_core::listing::{List, Page};
use idem_core::protocol::{
    self, Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Record, RecordStep, RecordStepAnswer, Release,
    ReleaseAnswer, Renew, RenewAnswer, Resolution, ResolveAnswer, State, StoredResult, Timestamp,
};
use idem_core::support::hints::Hints;
use idem_core::support::own_runtime::apart;
use idem_core::support::retry::retried;
use idem_core::{Store, Waiters};

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
    queues: Arc<Queues>,
    /// Whether the table says that transactions of callers are in use.
    announced: AtomicBool,
    walking: listing::Walking,
    place: String,
    max_result_bytes: usize,
    /// Keys of which this process saw a result.
    hints: Hints,
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

    /// Asks, and asks again where the answer was lost or the server was away for a moment.
    fn ask<A>(
        &self,
        key: &RecordKey,
        op: Op,
        answer: impl FnOnce(Answer) -> Option<A> + Send,
    ) -> impl Future<Output = Result<A, StoreError>> + Send {
        // Outside of the future, which is part of that of each call.
        let asked = Arc::new(Operation { key: key.clone(), op });
        let (queues, begin) = (&self.0.queues, Instant::now());
        async move {
            let given = match queues.ask(asked.clone()).await {
                // A second `forget` might delete the record of a claim that came in between.
                Err(error) if matches!(asked.op, Op::Forget) && error.is_outcome_unknown() => Err(error),
                Err(error) if error.is_transient() => {
                    let (queues, mut first) = (queues.clone(), Some(error));
                    let left = queues.setting().connector.timeout().saturating_sub(begin.elapsed());
                    // Pauses are slept where no caller can hold them up.
                    apart(async move {
                        retried(left, || {
                            let (queues, asked, first) = (queues.clone(), asked.clone(), first.take());
                            async move {
                                let given = match first {
                                    Some(error) => Err(error),
                                    None => queues.ask_apart(asked.clone()).await,
                                };
                                match given {
                                    Err(error)
                                        if matches!(asked.op, Op::Forget) && error.is_outcome_unknown() =>
                                    {
                                        Ok(Err(error))
                                    }
                                    given => given.map(Ok),
                                }
                            }
                        })
                        .await?
                    })
                    .await
                }
                given => given,
            }?;
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
}

impl Store for PostgresStore {
    async fn claim(&self, key: &RecordKey, request: &Claim) -> Result<ClaimAnswer, StoreError> {
        let (mark, begin) = (self.0.hints.mark(key), Instant::now());
        if self.0.hints.expects_result(mark) {
            match self.get(key).await {
                Ok(Some(record)) if matches!(record.state, State::Completed | State::Failed) => {
                    self.0.hints.claimed(mark, true);
                    // It was alive by the server's clock, and no clock changes the answer.
                    let now = Timestamp::default();
                    return Ok(protocol::claim(Some(&record), Fence::default(), request, now).answer);
                }
                Err(error) if begin.elapsed() > self.0.queues.setting().connector.timeout() / 2 => {
                    return Err(error);
                }
                // The claim needs no reading.
                Ok(_) | Err(_) => {}
            }
        }
        let answer = self
            .ask(key, Op::Claim(request.clone()), |answer| match answer {
                Answer::Claim(answer) => Some(answer),
                _ => None,
            })
            .await?;
        self.0.hints.claimed(mark, matches!(answer, ClaimAnswer::Replay(_)));
        Ok(answer)
    }

    async fn renew(&self, key: &RecordKey, request: &Renew) -> Result<RenewAnswer, StoreError> {
        self.ask(key, Op::Renew(*request), |answer| match answer {
            Answer::Renew(answer) => Some(answer),
            _ => None,
        })
        .await
    }

    async fn record_step(
        &self,
        key: &RecordKey,
        request: &RecordStep,
    ) -> Result<RecordStepAnswer, StoreError> {
        self.check_size(&request.step.result)?;
        self.ask(key, Op::RecordStep(request.clone()), |answer| match answer {
            Answer::RecordStep(answer) => Some(answer),
            _ => None,
        })
        .await
    }

    async fn complete(&self, key: &RecordKey, request: &Complete) -> Result<CompleteAnswer, StoreError> {
        self.check_size(&request.result)?;
        let asked = self.ask(key, Op::Complete(request.clone()), |answer| match answer {
            Answer::Complete(answer) => Some(answer),
            _ => None,
        });
        // Boxed, so that the future of a call has no room for it while its body runs.
        let answer = Box::pin(asked).await?;
        if answer == CompleteAnswer::Done {
            self.0.hints.put(self.0.hints.mark(key));
        }
        Ok(answer)
    }

    async fn release(&self, key: &RecordKey, request: &Release) -> Result<ReleaseAnswer, StoreError> {
        self.ask(key, Op::Release(*request), |answer| match answer {
            Answer::Release(answer) => Some(answer),
            _ => None,
        })
        .await
    }

    async fn resolve(&self, key: &RecordKey, resolution: &Resolution) -> Result<ResolveAnswer, StoreError> {
        if let Some((_, result)) = resolution.recorded() {
            self.check_size(result)?;
        }
        self.ask(key, Op::Resolve(resolution.clone()), |answer| match answer {
            Answer::Resolve(answer) => Some(answer),
            _ => None,
        })
        .await
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        self.ask(key, Op::Forget, |answer| match answer {
            Answer::Forget(answer) => Some(answer),
            _ => None,
        })
        .await
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        self.ask(key, Op::Get, |answer| match answer {
            Answer::Get(answer) => Some(answer),
            _ => None,
        })
        .await
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        let queues = self.0.queues.clone();
        apart(async move {
            let setting = queues.setting();
            deletion::purge(&setting.connector, &setting.statements, limit).await
        })
        .await
    }

    async fn list(&self, request: &List) -> Result<Page, StoreError> {
        let (queues, walking, request) = (self.0.queues.clone(), self.0.walking.clone(), request.clone());
        apart(async move { listing::list(&queues, &walking, &request).await }).await
    }

    async fn inspect(&self) -> Result<Inspection, StoreError> {
        let queues = self.0.queues.clone();
        apart(async move { inspection::look(&queues.setting().connector).await }).await
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
