//! `PostgresStore`: one table of a database, any number of processes.
//!
//! Owns the public face. Below it, `schema` makes the layout, `names` and `statements` say it in SQL,
//! `queue` holds what waits, a `worker` with a `session` of its own carries it out in `claims`,
//! `holding`, `judged` and `single`, `within` works in a caller's transaction, `rows` translates, and `failure` says what went wrong.

mod claims;
mod failure;
mod holding;
mod judged;
mod names;
mod queue;
mod rows;
mod schema;
mod session;
mod single;
mod statements;
mod within;
mod worker;

use std::fmt;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use sqlx::Connection as _;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use tokio::time::Instant;

use self::names::{Identifier, Names};
use self::queue::{Answer, Asked, Op, Queues};
use self::session::Opening;
use self::statements::Statements;
use super::own_runtime::apart;
use super::retry::retried;
use super::{Store, Waiters};
use crate::error::StoreError;
use crate::key::RecordKey;
use crate::protocol::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Record, Release, ReleaseAnswer, Renew, RenewAnswer,
    Resolution, ResolveAnswer, StoredResult,
};

const TABLE: &str = "idem_records";
/// How long one operation may take, unless it is said otherwise.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(5);
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest that can be said of both.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// How many connections there are at the most, unless it is said otherwise.
const CONNECTIONS: usize = 4;
const MOST_CONNECTIONS: usize = 64;
/// The largest result, unless it is said otherwise.
const MAX_RESULT_BYTES: usize = 16 * 1024 * 1024;
/// The largest that can be said: PostgreSQL takes values up to 1 GB, and a message is more than its value.
const LARGEST_MAX_RESULT_BYTES: usize = 512 * 1024 * 1024;

/// Keeps records in one table of a PostgreSQL database, version 12 or later.
///
/// An acknowledged step is committed, and survives what the server's own commits survive: with its usual
/// settings (`fsync` and `synchronous_commit` on) a crash and a power cut. The clock is the server's.
///
/// Operations that wait at the same moment travel together in one statement and one commit; one that
/// comes alone is not delayed. The store has connections of its own, at most
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
    place: String,
    table: String,
    max_result_bytes: usize,
    waiters: Waiters,
}

/// How to connect a [`PostgresStore`].
#[derive(Clone)]
#[must_use]
pub struct PostgresStoreBuilder {
    options: Result<PgConnectOptions, StoreError>,
    schema: Option<String>,
    table: String,
    operation_timeout: Duration,
    lock_timeout: Duration,
    connections: usize,
    max_result_bytes: usize,
}

impl PostgresStoreBuilder {
    fn new(options: Result<PgConnectOptions, StoreError>) -> Self {
        Self {
            options,
            schema: None,
            table: TABLE.into(),
            operation_timeout: OPERATION_TIMEOUT,
            lock_timeout: LOCK_TIMEOUT,
            connections: CONNECTIONS,
            max_result_bytes: MAX_RESULT_BYTES,
        }
    }

    /// The schema of the table, made if it is absent; if not set, the first that exists of the
    /// connection's `search_path`. Up to 63 letters, digits and underscores.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = Some(schema.into());
        self
    }

    /// The table; `idem_records` if not set. Up to 40 letters, digits and underscores. Stores with
    /// different tables have nothing in common.
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// How long an operation may take, with all that is asked again, from 1 millisecond to 1 hour; 5
    /// seconds if not set. It is also the longest that a statement may take.
    pub const fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.operation_timeout = timeout;
        self
    }

    /// How long a lock held by another transaction is waited for, from 1 millisecond to 1 hour; 1 second
    /// if not set.
    pub const fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = timeout;
        self
    }

    /// How many connections the store opens at the most, from 1 to 64; 4 if not set. More are seldom
    /// faster: operations that find none free travel together.
    pub const fn connections(mut self, most: usize) -> Self {
        self.connections = most;
        self
    }

    /// The largest result that is stored, in bytes, up to 512 MiB; 16 MiB if not set.
    pub const fn max_result_bytes(mut self, bytes: usize) -> Self {
        self.max_result_bytes = bytes;
        self
    }

    /// Connects, and makes the table if it is absent.
    ///
    /// # Errors
    ///
    /// [`Configuration`](crate::StoreErrorKind::Configuration) if a setting is out of its range or a name
    /// no identifier, the URL, the user or the database is wrong, a right is missing, or the table was
    /// made by a newer version. [`Unavailable`](crate::StoreErrorKind::Unavailable) if the server cannot
    /// be reached within the operation timeout.
    pub async fn connect(self) -> Result<PostgresStore, StoreError> {
        self.check()?;
        let schema = self.schema.as_deref().map(Identifier::schema).transpose()?;
        let table = Identifier::table(&self.table)?;
        let opening = Opening::new(self.options?, self.operation_timeout, self.lock_timeout);
        let place = place(opening.options());
        let (first, time) = (opening.clone(), self.operation_timeout);
        let names =
            apart(async move { retried(time, || prepare(&first, schema.clone(), &table)).await }).await?;
        let place = format!("{place} table {}", names.records);
        let statements = Arc::new(Statements::new(&names));
        let setting = worker::Setting { opening, statements, connections: self.connections };
        Ok(PostgresStore(Arc::new(Inner {
            queues: Arc::new(Queues::new(setting)),
            place,
            table: names.records,
            max_result_bytes: self.max_result_bytes,
            waiters: Waiters::default(),
        })))
    }

    fn check(&self) -> Result<(), StoreError> {
        let refuse = |detail: String| Err(StoreError::configuration(detail));
        for (name, timeout) in
            [("operation_timeout", self.operation_timeout), ("lock_timeout", self.lock_timeout)]
        {
            if timeout < Duration::from_millis(1) || timeout > LONGEST_TIMEOUT {
                return refuse(format!("`{name}` is {timeout:?} and must be from 1ms to 1h"));
            }
        }
        if self.connections == 0 || self.connections > MOST_CONNECTIONS {
            return refuse(format!(
                "`connections` is {} and must be from 1 to {MOST_CONNECTIONS}",
                self.connections
            ));
        }
        if self.max_result_bytes == 0 || self.max_result_bytes > LARGEST_MAX_RESULT_BYTES {
            return refuse(format!(
                "`max_result_bytes` is {} and must be from 1 to {LARGEST_MAX_RESULT_BYTES}",
                self.max_result_bytes
            ));
        }
        Ok(())
    }
}

impl fmt::Debug for PostgresStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStoreBuilder")
            .field("place", &self.options.as_ref().map(place))
            .field("schema", &self.schema)
            .field("table", &self.table)
            .field("operation_timeout", &self.operation_timeout)
            .field("lock_timeout", &self.lock_timeout)
            .field("connections", &self.connections)
            .field("max_result_bytes", &self.max_result_bytes)
            .finish()
    }
}

/// Where a server and database are: no user, no password.
fn place(options: &PgConnectOptions) -> String {
    let database = options.get_database().unwrap_or(options.get_username());
    match options.get_socket() {
        Some(socket) => format!("{} database {database}", socket.display()),
        None => format!("{}:{} database {database}", options.get_host(), options.get_port()),
    }
}

async fn prepare(
    opening: &Opening,
    schema: Option<Identifier>,
    table: &Identifier,
) -> Result<Names, StoreError> {
    let mut connection = opening.open().await?;
    let names = schema::prepare(&mut connection, schema, table).await;
    // It has done what it was opened for, whether the server hears of it or not.
    let _ = PgConnection::close(connection).await;
    names
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
    /// [`PgConnectOptions`]'s.
    pub fn builder(url: &str) -> PostgresStoreBuilder {
        // The driver takes any scheme. What is there instead may be a password, so it is not repeated.
        let options = if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            PgConnectOptions::from_str(url).map_err(|error| failure::of_connect(&error))
        } else {
            Err(StoreError::configuration("the URL of the database must begin with `postgres://`"))
        };
        PostgresStoreBuilder::new(options)
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
            Err(error) if error.is_transient() => {
                let (queues, mut first) = (queues.clone(), Some(error));
                let left = queues.setting().opening.time().saturating_sub(begin.elapsed());
                // Pauses are slept where no caller can hold them up.
                apart(async move {
                    retried(left, || {
                        let (queues, asked, first) = (queues.clone(), asked.clone(), first.take());
                        async move {
                            match first {
                                Some(error) => Err(error),
                                None => queues.ask_apart(asked).await,
                            }
                        }
                    })
                    .await
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
        self.ask(key, Op::Claim(request.clone()), |answer| match answer {
            Answer::Claim(answer) => Some(answer),
            _ => None,
        })
        .await
    }

    async fn renew(&self, key: &RecordKey, request: &Renew) -> Result<RenewAnswer, StoreError> {
        self.ask(key, Op::Renew(*request), |answer| match answer {
            Answer::Renew(answer) => Some(answer),
            _ => None,
        })
        .await
    }

    async fn complete(&self, key: &RecordKey, request: &Complete) -> Result<CompleteAnswer, StoreError> {
        self.check_size(&request.result)?;
        self.ask(key, Op::Complete(request.clone()), |answer| match answer {
            Answer::Complete(answer) => Some(answer),
            _ => None,
        })
        .await
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
