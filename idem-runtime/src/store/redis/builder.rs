//! How a `RedisStore` is made.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Client, RedisError};

use super::link::{Given, Link, Own, Single, Source};
use super::name::Prefix;
use super::{Inner, RedisStore, Replicas, check};
use crate::error::StoreError;
use crate::store::Waiters;
use crate::store::hints::Hints;
use crate::store::own_runtime::apart;

/// How long an operation may take in all, unless it is said otherwise.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest that can be said.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// The largest result, unless it is said otherwise.
const MAX_RESULT_BYTES: usize = 16 * 1024 * 1024;
/// The largest that can be said: a string of Redis takes 512 MiB, and a record is more than its result.
const LARGEST_MAX_RESULT_BYTES: usize = 512 * 1024 * 1024 - 1024;
/// What keys begin with, unless it is said otherwise.
const PREFIX: &str = "idem:";

/// How to make a [`RedisStore`].
#[must_use]
pub struct RedisStoreBuilder {
    target: Target,
    prefix: String,
    operation_timeout: Duration,
    max_result_bytes: usize,
    replicas: Option<Replicas>,
}

enum Target {
    Server(String),
    #[cfg(feature = "redis-cluster")]
    Cluster(Vec<String>),
    #[cfg(feature = "redis-sentinel")]
    Sentinel(String, Vec<String>),
    Given(Arc<dyn Given>),
}

impl RedisStore {
    /// Sets up how to connect to the server at `url`: `redis://[user:password@]host[:port][/db]`,
    /// `rediss://..` (feature `redis-tls`), or `redis+unix:///path`.
    pub fn builder(url: impl AsRef<str>) -> RedisStoreBuilder {
        RedisStoreBuilder::new(Target::Server(url.as_ref().to_owned()))
    }

    /// Sets up how to connect to a cluster, by the URLs of some of its nodes.
    #[cfg(feature = "redis-cluster")]
    pub fn cluster<U: AsRef<str>>(nodes: impl IntoIterator<Item = U>) -> RedisStoreBuilder {
        let nodes = nodes.into_iter().map(|url| url.as_ref().to_owned()).collect();
        RedisStoreBuilder::new(Target::Cluster(nodes))
    }

    /// Sets up how to connect to the master that these sentinels know as `service`, by their URLs. User,
    /// password and database of the first URL are the master's.
    #[cfg(feature = "redis-sentinel")]
    pub fn sentinel<U: AsRef<str>>(
        service: impl Into<String>,
        sentinels: impl IntoIterator<Item = U>,
    ) -> RedisStoreBuilder {
        let sentinels = sentinels.into_iter().map(|url| url.as_ref().to_owned()).collect();
        RedisStoreBuilder::new(Target::Sentinel(service.into(), sentinels))
    }

    /// Sets up a store on a connection of `redis` 1 that is there already, such as a `ConnectionManager`.
    /// It must be multiplexed, as all clonable ones are; for a cluster, use `RedisStore::cluster`.
    ///
    /// It is driven by the runtime it was made in: a body that blocks all threads of that runtime holds
    /// up the renewal of its own lease, and with the runtime the connection ends.
    pub fn from_connection(
        connection: impl ConnectionLike + Clone + Send + Sync + 'static,
    ) -> RedisStoreBuilder {
        RedisStoreBuilder::new(Target::Given(Arc::new(Single(connection))))
    }
}

impl RedisStoreBuilder {
    fn new(target: Target) -> Self {
        Self {
            target,
            prefix: PREFIX.to_owned(),
            operation_timeout: OPERATION_TIMEOUT,
            max_result_bytes: MAX_RESULT_BYTES,
            replicas: None,
        }
    }

    /// What every key on the server begins with; `idem:` if not set. Stores with different prefixes share
    /// nothing.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long an operation is asked again before it fails, from 10 milliseconds to 1 hour; 5 seconds if
    /// not set. One try may take a third of it, as may connecting.
    pub const fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.operation_timeout = timeout;
        self
    }

    /// The largest result that is stored, in bytes, up to nearly 512 MiB; 16 MiB if not set.
    pub const fn max_result_bytes(mut self, bytes: usize) -> Self {
        self.max_result_bytes = bytes;
        self
    }

    /// Lets a claim count as granted, and a result as recorded or replayed, only once `count` replicas have
    /// acknowledged it within `timeout` (`WAIT`), of whole milliseconds. Too few are an
    /// [`OutcomeUnknown`](crate::StoreErrorKind::OutcomeUnknown): the same owner may ask again.
    ///
    /// The connection answers nothing else while it waits, so that throughput falls. A replica that
    /// acknowledged may still not be the one that is promoted: this narrows what failover can lose, and
    /// does not close it.
    pub const fn wait_replicas(mut self, count: u32, timeout: Duration) -> Self {
        self.replicas = Some(Replicas { count, timeout });
        self
    }

    /// Connects, and looks at the server: what weakens the guarantee is said in a warning event.
    ///
    /// # Errors
    ///
    /// [`Configuration`](crate::StoreErrorKind::Configuration) if a setting is out of its range, the URL
    /// cannot be understood, the user is refused, or the server is a replica or older than Redis 7.0.
    /// [`Unavailable`](crate::StoreErrorKind::Unavailable) if the server cannot be reached within the
    /// operation timeout.
    pub async fn connect(self) -> Result<RedisStore, StoreError> {
        self.check()?;
        let prefix = Prefix::new(&self.prefix)?;
        let answer_within = self.operation_timeout / 3;
        let time = self.operation_timeout;
        let link = match self.target {
            Target::Server(url) => {
                let client = Client::open(url).map_err(wrong_url)?;
                Link::Own(Arc::new(Own::new(Source::Server(Box::new(client)), answer_within)))
            }
            #[cfg(feature = "redis-sentinel")]
            Target::Sentinel(service, sentinels) => {
                let client = super::sentinel::client(service, sentinels)?;
                Link::Own(Arc::new(Own::new(Source::Sentinel(Box::new(client.into())), answer_within)))
            }
            #[cfg(feature = "redis-cluster")]
            Target::Cluster(nodes) => super::cluster::connect(nodes, time, answer_within).await?,
            Target::Given(connection) => Link::Given(connection),
        };
        let looked_at = link.clone();
        // Judged here, where the caller's own subscriber hears it.
        apart(async move { check::look(&looked_at, time).await }).await?.judge()?;
        Ok(RedisStore(Arc::new(Inner {
            link,
            lanes: Arc::default(),
            hints: Hints::new(),
            prefix,
            operation_timeout: self.operation_timeout,
            max_result_bytes: self.max_result_bytes,
            replicas: self.replicas,
            waiters: Waiters::default(),
        })))
    }

    fn check(&self) -> Result<(), StoreError> {
        if self.operation_timeout < Duration::from_millis(10) || self.operation_timeout > LONGEST_TIMEOUT {
            return Err(StoreError::configuration(format!(
                "`operation_timeout` is {:?} and must be from 10ms to 1h",
                self.operation_timeout
            )));
        }
        if self.max_result_bytes == 0 || self.max_result_bytes > LARGEST_MAX_RESULT_BYTES {
            return Err(StoreError::configuration(format!(
                "`max_result_bytes` is {} and must be from 1 to {LARGEST_MAX_RESULT_BYTES}",
                self.max_result_bytes
            )));
        }
        match self.replicas {
            Some(Replicas { count: 0, .. }) => {
                Err(StoreError::configuration("`wait_replicas` must wait for at least one replica"))
            }
            // One try ends after a third of the operation timeout.
            Some(Replicas { timeout, .. }) if timeout.is_zero() || timeout > self.operation_timeout / 4 => {
                Err(StoreError::configuration(format!(
                    "the timeout of `wait_replicas` is {timeout:?} and must be from 1ms to a quarter of the \
                     operation timeout, {:?}",
                    self.operation_timeout / 4
                )))
            }
            _ => Ok(()),
        }
    }
}

/// The URL itself is not repeated: it may hold a password.
pub(super) fn wrong_url(error: RedisError) -> StoreError {
    StoreError::configuration(
        "the URL of the Redis server cannot be used; write `redis://[user:password@]host[:port][/db]`, or \
         `rediss://..` with the feature `redis-tls`",
    )
    .with_source(error)
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("prefix", &self.prefix)
            .field("operation_timeout", &self.operation_timeout)
            .field("max_result_bytes", &self.max_result_bytes)
            .field("replicas", &self.replicas)
            .finish_non_exhaustive()
    }
}
