//! `RedisStore`: a store on Redis or Valkey, on one server, a cluster, or a master that sentinels name.
//!
//! Owns the public API. `builder` makes a store, and `check` examines the server. `asking` chooses a connection: the
//! stores' own (`connection`), that of the calling runtime (`runtime_connections`), on which what is ready goes in one
//! pipeline (`pipelined`), or the one that waits for replicas (`replication`). `name` makes the name of a key, `layout`
//! packs a record at the positions in `fields`, `scripts` restate the protocol on the server, `requests` call them, and
//! `failure` translates errors. If a claim changes nothing, the script returns the record and the server's time, and this crate calls the
//! protocol's function for the answer.

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
mod masters;
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

use redis::{Value, cmd};

pub use self::builder::RedisStoreBuilder;
use self::connection::Connection;
use self::failure::misunderstood;
use self::name::Prefix;
use self::replication::Replication;
use self::requests::number;
use self::runtime_connections::RuntimeConnections;
use self::scripts::Request;
use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::inspection::Inspection;
use idem_core::listing::{List, Page};
use idem_core::protocol::{self, Answer, Claim, ClaimAnswer, Record};
use idem_core::{Store, Waiters};
use idem_store_kit::hints::Hints;
use idem_store_kit::own_runtime::apart;
use idem_store_kit::retry::retried;

/// Keeps records on a Redis or Valkey server, with one packed string for each record.
///
/// Each operation is one script with one key, so one round trip, and uses the server's clock. The expiry of a key on
/// the server is the end of the record's retention, never of its lease: a record exists until its `expires_at`, to the
/// millisecond. A key in doubt, or in flight under the in-doubt policy, has no expiry.
///
/// An acknowledged operation survives what the server's data survives: a restart only with `appendonly`, and the loss
/// of the master only with [`wait_replicas`](RedisStoreBuilder::wait_replicas). `docs/stores/redis.md` in the
/// repository says how to run such a server. Connecting checks the server, and reports problems as events with the
/// target `idem`.
///
/// The store has one connection for each runtime that calls it, up to 256, and one in a separate thread for renewals
/// and retries. So callers in several runtimes may share a store, and a body that blocks its thread keeps its claim.
/// The store retries operations until there is an answer or the operation timeout is over. It does not retry a
/// [`forget`](Store::forget) that may have been applied.
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
    /// Connects to the server at `url`, `redis://[user:password@]host[:port][/db]`, with the default settings of a
    /// [`builder`](Self::builder).
    ///
    /// # Errors
    ///
    /// As [`RedisStoreBuilder::connect`].
    pub async fn connect(url: impl AsRef<str>) -> Result<Self, StoreError> {
        Self::builder(url).connect().await
    }

    /// The answer to a claim on a key that has a result, with a read instead of a script. `None` if the key has no
    /// result.
    async fn replay(&self, name: &[u8], request: &Claim) -> Result<Option<ClaimAnswer>, StoreError> {
        let Value::BulkString(record) = self.ask(Request::get(name)).await? else { return Ok(None) };
        Ok(protocol::recorded_answer(&layout::decode(record)?, request))
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
            let is_replicated = self.0.replication.is_some();
            if let protocol::Request::Claim(claim) = &request
                && self.0.hints.has(mark)
                && !is_replicated
                && let Some(answer) = self.replay(&name, claim).await?
            {
                return Ok(answer.into());
            }
            let call = requests::call(&name, &request, is_replicated)?;
            // Boxed, but for what every claim and result takes: every call has room for this future.
            let answer = match &request {
                protocol::Request::Renew(_) | protocol::Request::Release(_) => {
                    Box::pin(self.ask_apart(call, self.0.operation_timeout)).await?
                }
                _ if is_replicated => Box::pin(self.ask_replicated(name, call)).await?,
                _ => self.ask(call).await?,
            };
            let answer = requests::answer(&request, answer)?;
            self.0.hints.saw(mark, &answer);
            Ok(answer)
        }
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        let mut delete = cmd("DEL");
        delete.arg(self.0.prefix.name(key));
        let (request, connection, time) =
            (Request::plain(delete), self.0.connection.clone(), self.0.operation_timeout);
        // A repeated request might delete the record of a claim that came in between.
        let deleting = apart(async move {
            retried(time, || async {
                match connection.ask(&request).await {
                    Err(error) if error.is_outcome_unknown() => Ok(Err(error)),
                    answer => answer.map(Ok),
                }
            })
            .await
        });
        Ok(number(&deleting.await??)? > 0)
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        match self.ask(Request::get(&self.0.prefix.name(key))).await? {
            Value::Nil => Ok(None),
            Value::BulkString(record) => layout::decode(record).map(Some),
            _ => Err(misunderstood()),
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
            let mut inspection = check::look(&connection, time).await?.inspection();
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
