//! `PostgresStore`: one table of a database, any number of processes.
//!
//! Owns the public face. Below it, `builder` sets it up, `schema` makes the `layout`, `names` and `statements` say it in SQL,
//! `waiting` and `queue` hold what waits, a `worker` with a `session` of its own carries it out in `claims`,
//! `holding`, `judged` and `single`, `within` works in a caller's transaction, `rows` translates, and `failure` says what went wrong.

mod builder;
mod claims;
pub(crate) mod failure;
mod holding;
mod inspection;
mod judged;
mod layout;
mod listing;
pub(crate) mod names;
mod queue;
mod rows;
pub(crate) mod schema;
pub(crate) mod session;
mod single;
pub(crate) mod statements;
mod waiting;
mod within;
mod worker;

use std::fmt;
use std::sync::Arc;

use sqlx::PgPool;
use tokio::time::Instant;

pub use self::builder::PostgresStoreBuilder;
use self::queue::{Answer, Asked, Op, Queues};
use super::hints::Hints;
use super::own_runtime::apart;
use super::retry::retried;
use super::{Store, Waiters};
use crate::error::StoreError;
use crate::inspection::Inspection;
use crate::key::RecordKey;
use crate::listing::{List, Page};
use crate::protocol::{
    self, Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Record, RecordStep, RecordStepAnswer, Release,
    ReleaseAnswer, Renew, RenewAnswer, Resolution, ResolveAnswer, State, StoredResult, Timestamp,
};

/// Keeps records in one table of a PostgreSQL database, version 12 or later.
///
/// An acknowledged step is committed, and survives what the server's own commits survive: with its usual
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
/// [`purge`](Store::purge) is called: see `docs/operations.md`.
///
/// A handle is cheap to clone. When the last one is dropped, what was asked is still done.
#[derive(Clone)]
pub struct PostgresStore(Arc<Inner>);

struct Inner {
    queues: Arc<Queues>,
    walking: listing::Walking,
    place: String,
    max_result_bytes: usize,
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
    pub fn builder(url: &str) -> PostgresStoreBuilder {
        PostgresStoreBuilder::of_url(url)
    }

    /// Sets up how to connect to the database of this pool.
    pub fn builder_from_pool(pool: &PgPool) -> PostgresStoreBuilder {
        PostgresStoreBuilder::new(Ok(pool.connect_options().as_ref().clone()))
    }

    /// Asks, and asks again where the answer was lost or the server was away for a moment.
    async fn ask<A>(
        &self,
        key: &RecordKey,
        op: Op,
        answer: impl FnOnce(Answer) -> Option<A>,
    ) -> Result<A, StoreError> {
        let asked = Arc::new(Asked { key: key.clone(), op });
        let (queues, begin) = (&self.0.queues, Instant::now());
        let given = match queues.ask(asked.clone()).await {
            // Asked again, it might delete the record of a claim that came in between.
            Err(error) if matches!(asked.op, Op::Forget) && error.is_outcome_unknown() => Err(error),
            Err(error) if error.is_transient() => {
                let (queues, mut first) = (queues.clone(), Some(error));
                let left = queues.setting().opening.time().saturating_sub(begin.elapsed());
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
        let mark = self.0.hints.mark(key);
        if self.0.hints.has(mark)
            && let Some(record) = self.get(key).await?
            && matches!(record.state, State::Completed | State::Failed)
        {
            // It was alive by the server's clock, and no clock changes the answer.
            return Ok(protocol::claim(Some(&record), Fence::default(), request, Timestamp::default()).answer);
        }
        let answer = self
            .ask(key, Op::Claim(request.clone()), |answer| match answer {
                Answer::Claim(answer) => Some(answer),
                _ => None,
            })
            .await?;
        match answer {
            ClaimAnswer::Replay(_) => self.0.hints.put(mark),
            _ => self.0.hints.take(mark),
        }
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
        let answer = self
            .ask(key, Op::Complete(request.clone()), |answer| match answer {
                Answer::Complete(answer) => Some(answer),
                _ => None,
            })
            .await?;
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
        if let Resolution::Record(_, result) = resolution {
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
            single::purge(&setting.opening, &setting.statements, limit).await
        })
        .await
    }

    async fn list(&self, request: &List) -> Result<Page, StoreError> {
        let (queues, walking, request) = (self.0.queues.clone(), self.0.walking.clone(), request.clone());
        apart(async move { listing::list(&queues, &walking, &request).await }).await
    }

    async fn inspect(&self) -> Result<Inspection, StoreError> {
        let queues = self.0.queues.clone();
        apart(async move { inspection::look(&queues.setting().opening).await }).await
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
