//! The settings of a `RedisStore`, and connecting.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::Client;

use super::connection::{Connection, Reconnecting, Source};
use super::failure::wrong_url;
use super::name::Prefix;
use super::replication::{Replicas, Replication};
use super::{Inner, RedisStore, check};
use idem_core::StoreError;
use idem_core::Waiters;
use idem_store_kit::hints::Hints;
use idem_store_kit::limits;
use idem_store_kit::own_runtime::apart;

/// Upper limit of `max_result_bytes`: a Redis string has at most 512 MiB, and a record is larger than its
/// result.
const LARGEST_MAX_RESULT_BYTES: usize = 512 * 1024 * 1024 - 1024;
/// The default prefix of all keys.
const PREFIX: &str = "idem:";

/// The settings for a new [`RedisStore`].
#[derive(Clone)]
#[must_use]
pub struct RedisStoreBuilder {
    target: Target,
    prefix: String,
    operation_timeout: Duration,
    max_result_bytes: usize,
    replicas: Option<Replicas>,
}

#[derive(Clone)]
enum Target {
    Server(String),
    #[cfg(feature = "cluster")]
    Cluster(Vec<String>),
    #[cfg(feature = "sentinel")]
    Sentinel(String, Vec<String>),
}

impl Target {
    /// The connection for operations with this timeout.
    async fn open(&self, time: Duration) -> Result<Connection, StoreError> {
        // One try may take a third of the time.
        let answer_within = time / 3;
        let source = match self {
            Self::Server(url) => Source::Server(Box::new(Client::open(url.as_str()).map_err(wrong_url)?)),
            #[cfg(feature = "sentinel")]
            Self::Sentinel(service, urls) => {
                Source::Sentinel(Box::new(super::sentinel::Sentinels::new(service.clone(), urls)?))
            }
            #[cfg(feature = "cluster")]
            Self::Cluster(nodes) => {
                let cluster = super::cluster::connect(nodes.clone(), time, answer_within).await?;
                return Ok(Connection::Cluster(cluster));
            }
        };
        Ok(Connection::Own(Arc::new(Reconnecting::new(source, answer_within))))
    }
}

impl RedisStore {
    /// Sets up how to connect to the server at `url`: `redis://[user:password@]host[:port][/db]`,
    /// `rediss://..` (feature `redis-tls`), or `redis+unix:///path`.
    pub fn builder(url: impl AsRef<str>) -> RedisStoreBuilder {
        RedisStoreBuilder::new(Target::Server(url.as_ref().to_owned()))
    }

    /// Sets up how to connect to a cluster, with the URLs of some of its nodes.
    #[cfg(feature = "cluster")]
    pub fn cluster<U: AsRef<str>>(nodes: impl IntoIterator<Item = U>) -> RedisStoreBuilder {
        let nodes = nodes.into_iter().map(|url| url.as_ref().to_owned()).collect();
        RedisStoreBuilder::new(Target::Cluster(nodes))
    }

    /// Sets up how to connect to the master that the sentinels at these URLs know as `service`. User,
    /// password, database and TLS of the first URL also apply to the master.
    #[cfg(feature = "sentinel")]
    pub fn sentinel<U: AsRef<str>>(
        service: impl Into<String>,
        sentinels: impl IntoIterator<Item = U>,
    ) -> RedisStoreBuilder {
        let sentinels = sentinels.into_iter().map(|url| url.as_ref().to_owned()).collect();
        RedisStoreBuilder::new(Target::Sentinel(service.into(), sentinels))
    }
}

impl RedisStoreBuilder {
    fn new(target: Target) -> Self {
        Self {
            target,
            prefix: PREFIX.to_owned(),
            operation_timeout: limits::OPERATION_TIMEOUT,
            max_result_bytes: limits::MAX_RESULT_BYTES,
            replicas: None,
        }
    }

    /// The prefix of every key on the server; `idem:` unless set. Stores with different prefixes share no
    /// records.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long the store retries an operation before it fails, from 10 milliseconds to 1 hour; 5 seconds
    /// unless set. One try may take a third of this time, and connecting may take a third, too.
    pub const fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.operation_timeout = timeout;
        self
    }

    /// The largest result that is stored, in bytes, up to nearly 512 MiB; 16 MiB unless set.
    pub const fn max_result_bytes(mut self, bytes: usize) -> Self {
        self.max_result_bytes = bytes;
        self
    }

    /// Makes the store wait for replicas. The store reports a claim as granted, a step as recorded, and a
    /// result as recorded or replayed, only if `count` replicas have acknowledged the data. It waits for them
    /// with the server command `WAIT`, for at most `timeout` (in whole milliseconds, rounded down, at least
    /// 1). If fewer replicas have acknowledged the data by then, the error is
    /// [`OutcomeUnknown`](idem_core::StoreErrorKind::OutcomeUnknown), and the same owner may send the request
    /// again.
    ///
    /// Operations that wait for replicas use a separate connection, in batches (on a cluster, one by one).
    /// Renewals and releases do not wait. A failover may promote a replica that has not acknowledged, so this
    /// setting makes losses rarer, but does not exclude them.
    pub const fn wait_replicas(mut self, count: u32, timeout: Duration) -> Self {
        self.replicas = Some(Replicas { count, timeout });
        self
    }

    /// Connects, and checks the server: a warning event names each setting that weakens the guarantee.
    ///
    /// # Errors
    ///
    /// - [`Configuration`](idem_core::StoreErrorKind::Configuration): a setting is out of its range, the URL
    ///   is not valid, the server refuses the user, or the server is a replica or older than Redis 7.0.
    /// - [`Unavailable`](idem_core::StoreErrorKind::Unavailable): the store cannot reach the server within
    ///   the operation timeout.
    pub async fn connect(self) -> Result<RedisStore, StoreError> {
        self.check().map_err(StoreError::configuration)?;
        let prefix = Prefix::new(&self.prefix)?;
        let time = self.operation_timeout;
        let connection = self.target.open(time).await?;
        let replication = match self.replicas {
            Some(replicas) => Some(Arc::new(Replication::new(self.target.open(time).await?, replicas)?)),
            None => None,
        };
        let looked_at = connection.clone();
        // Reported in the caller's task, so that the caller's own subscriber gets the warnings.
        check::report(&apart(async move { check::look(&looked_at, time).await }).await?)?;
        Ok(RedisStore(Arc::new(Inner {
            connection,
            runtime_connections: Arc::default(),
            hints: Hints::default(),
            prefix,
            operation_timeout: time,
            max_result_bytes: self.max_result_bytes,
            replication,
            waiters: Waiters::default(),
        })))
    }

    fn check(&self) -> Result<(), String> {
        limits::check_time("operation_timeout", self.operation_timeout, Duration::from_millis(10))?;
        limits::check_number("max_result_bytes", self.max_result_bytes, LARGEST_MAX_RESULT_BYTES)?;
        // One try ends after a third of the operation timeout. The wait for replicas must end earlier.
        let longest = self.operation_timeout / 4;
        match self.replicas {
            Some(Replicas { count: 0, .. }) => {
                Err("`wait_replicas` must wait for at least one replica".to_owned())
            }
            Some(Replicas { timeout, .. }) if timeout.is_zero() || timeout > longest => Err(format!(
                "the timeout of `wait_replicas` is {timeout:?} and must be from 1ms to a quarter of the operation \
                 timeout, {longest:?}"
            )),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
