//! `RedisStore`: a store on Redis or Valkey, on one server, a cluster, or a master that sentinels name.
//!
//! Owns the public API. `builder` makes a store, and `check` examines the server. `asking` chooses a
//! connection: the stores' own (`connection`), or the connection of the calling runtime
//! (`runtime_connections`), which sends waiting requests together (`pipelined`). `replication` has the
//! connection that waits for replicas. `cluster` and `sentinel` connect to these kinds of servers. `name`
//! makes the name of a key, `layout` packs a record at the positions in `fields`, and `listing` walks through
//! all records. `scripts` has the scripts that restate the protocol on the server, `requests` builds the
//! calls of these scripts, and `failure` translates errors. The script of a claim returns the record as it
//! was before the claim, and the server's time if the answer depends on it. From these, the protocol's own
//! function decides the answer in this process.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![expect(clippy::manual_async_fn, reason = "an `async fn` has each argument in its future twice")]

mod asking;
mod builder;
mod check;
#[cfg(feature = "cluster")]
mod cluster;
mod connection;
mod failure;
mod fields;
mod layout;
mod listing;
mod name;
mod pipelined;
mod replication;
mod requests;
mod runtime_connections;
mod scripts;
#[cfg(feature = "sentinel")]
mod sentinel;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::cmd;

pub use self::builder::RedisStoreBuilder;
use self::connection::Connection;
use self::name::Prefix;
use self::replication::Replication;
use self::requests::number;
use self::runtime_connections::RuntimeConnections;
use self::scripts::{READ, Request};
use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::inspection::Inspection;
use idem_core::listing::{List, Page};
use idem_core::protocol::{self, Answer, Claim, ClaimAnswer, Record, Resolution, ResolveAnswer, Seen};
use idem_core::{Store, StoreErrorKind, Waiters};
use idem_store_kit::hints::Hints;
use idem_store_kit::own_runtime::apart;
use idem_store_kit::retry::retried;

/// Keeps records on a Redis or Valkey server, with one packed string for each record.
///
/// Each change of a record is one call of a script with one key, in one round trip, by the server's clock. If
/// this process has seen a result of a key, a claim of this key first reads the record. If the record has a
/// result, the claim needs no script. (A store that waits for replicas does not read first.)
///
/// The expiry of a key on the server is the end of the record's retention, never of its lease: a record
/// exists until its `expires_at`, to the millisecond. A key in doubt, or in flight under the in-doubt policy,
/// has no expiry.
///
/// An acknowledged operation survives what the server's data survives: a restart only with `appendonly`, and
/// the loss of the master only with [`wait_replicas`](RedisStoreBuilder::wait_replicas).
/// `docs/stores/redis.md` in the repository says how to run such a server. Connecting checks the server, and
/// reports problems as events with the target `idem`.
///
/// The store has one connection for each runtime that calls it, up to 256. A separate thread has one more
/// connection, for renewals, releases and retries. (On a cluster, that thread drives all connections.) So
/// callers in several runtimes may share a store, and a body that blocks its thread keeps its claim. The
/// store retries operations until there is an answer or the operation timeout is over.
///
/// ```no_run
/// # async fn example() -> Result<(), idem_core::StoreError> {
/// let store = idem_redis::RedisStore::connect("redis://127.0.0.1/").await?;
/// # let _ = store;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisStore(Arc<Inner>);

struct Inner {
    connection: Connection,
    runtime_connections: Arc<RuntimeConnections>,
    hints: Hints,
    prefix: Prefix,
    operation_timeout: Duration,
    max_result_bytes: usize,
    replication: Option<Arc<Replication>>,
    waiters: Waiters,
}

impl RedisStore {
    /// Connects to the server at `url`, `redis://[user:password@]host[:port][/db]`, with the default settings
    /// of a [`builder`](Self::builder).
    ///
    /// # Errors
    ///
    /// As [`RedisStoreBuilder::connect`].
    pub async fn connect(url: impl AsRef<str>) -> Result<Self, StoreError> {
        Self::builder(url).connect().await
    }

    /// The answer to a claim by a read, without a script. `None` if the key has no result.
    async fn replay(&self, name: &[u8], request: &Claim) -> Result<Option<ClaimAnswer>, StoreError> {
        let record = requests::record(self.ask(Request::get(name)).await?)?;
        Ok(record.and_then(|record| protocol::recorded_answer(&record, request)))
    }
}

impl Store for RedisStore {
    fn apply(
        &self,
        key: &RecordKey,
        request: protocol::Request,
    ) -> impl Future<Output = Result<Answer, StoreError>> + Send {
        async move {
            request.check_size(self.0.max_result_bytes)?;
            let (name, mark) = (self.0.prefix.name(key), self.0.hints.mark(key));
            let (replication, time) = (&self.0.replication, self.0.operation_timeout);
            if let protocol::Request::Claim(claim) = &request
                && self.0.hints.has(mark)
                && replication.is_none()
                && let Some(answer) = self.replay(&name, claim).await?
            {
                return Ok(answer.into());
            }
            let call = requests::call(&name, &request, replication.is_some())?;
            // The paths of renewals, releases and replication are boxed, because otherwise the future of
            // every call would contain their futures.
            let answer = match (&request, replication) {
                (protocol::Request::Renew(_) | protocol::Request::Release(_), _) => {
                    Box::pin(self.ask_apart(call, time)).await?
                }
                (_, Some(replication)) => Box::pin(replication.ask(name, call, time)).await?,
                (_, None) => self.ask(call).await?,
            };
            let answer = requests::answer(&request, answer)?;
            self.0.hints.saw(mark, &answer);
            Ok(answer)
        }
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        let name = self.0.prefix.name(key);
        let mut meant = None;
        // Deletes only the version that was read. This store and the client of a cluster repeat requests. If
        // a new claim came in between, a repeated deletion must not delete its record. An unreadable record
        // has no known version, so it is deleted as it is.
        loop {
            let read = self.ask_apart(Request::get(&name), self.0.operation_timeout).await;
            let record = match read.and_then(requests::record) {
                Ok(Some(record)) => record,
                Ok(None) => return Ok(meant.is_some()),
                Err(error) if error.kind() == StoreErrorKind::CorruptRecord => {
                    let mut delete = cmd("DEL");
                    delete.arg(name);
                    let deleted = self.ask_apart(Request::plain(delete), self.0.operation_timeout).await?;
                    return Ok(number(&deleted)? > 0);
                }
                Err(error) => return Err(error),
            };
            if meant.replace(record.created_at).is_some_and(|meant| meant != record.created_at) {
                return Ok(true);
            }
            let request = protocol::Request::Resolve(Resolution::ForgetSeen(Seen::of(&record)));
            let call = requests::call(&name, &request, false)?;
            let answer = self.ask_apart(call, self.0.operation_timeout).await?;
            if !matches!(requests::answer(&request, answer)?, Answer::Resolve(ResolveAnswer::Changed(_))) {
                return Ok(true);
            }
        }
    }

    /// With [`wait_replicas`](RedisStoreBuilder::wait_replicas), `get` returns a result only when the
    /// replicas have it, as a replay does.
    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        let name = self.0.prefix.name(key);
        let record = requests::record(self.ask(Request::get(&name)).await?)?;
        match &self.0.replication {
            Some(replication) if record.as_ref().is_some_and(|record| record.result.is_some()) => {
                let read = READ.call(&name, 0, None::<u8>);
                let reading = replication.ask(name, read, self.0.operation_timeout);
                requests::record(Box::pin(reading).await?)
            }
            _ => Ok(record),
        }
    }

    /// Does nothing, because the server deletes a record when it expires.
    async fn purge(&self, _limit: usize) -> Result<usize, StoreError> {
        Ok(0)
    }

    async fn list(&self, request: &List) -> Result<Page, StoreError> {
        let (connection, prefix, request) =
            (self.0.connection.clone(), self.0.prefix.clone(), request.clone());
        let time = self.0.operation_timeout;
        apart(async move { retried(time, || listing::page(&connection, &prefix, &request)).await }).await
    }

    async fn inspect(&self) -> Result<Inspection, StoreError> {
        let (connection, time) = (self.0.connection.clone(), self.0.operation_timeout);
        apart(async move {
            let mut inspection = check::look(&connection, time).await?;
            inspection.now = Some(retried(time, || listing::now(&connection)).await?);
            Ok(inspection)
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

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("prefix", &self.0.prefix).finish_non_exhaustive()
    }
}
