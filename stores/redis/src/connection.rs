//! Connections to the server, and when to replace one.
//!
//! This module knows nothing about records. The stores' own runtime drives the shared connection. So no
//! caller delays the others, even if its thread is blocked or its runtime has ended. The faster connections
//! are in `runtime_connections`.
//!
//! The client's own `ConnectionManager` is not used. It keeps a connection even if the server no longer
//! answers or has become a replica. It also retries by itself, in addition to `retried`.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
// The system's clock. A test may have paused the runtime's clock.
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind, Value,
};

use super::failure::{self, misunderstood, understood};
use super::scripts::Request;
use idem_core::StoreError;
use idem_store_kit::own_runtime::apart;

/// How many requests a connection queues before callers wait for space.
const QUEUE: usize = 1_024;

/// The store replaces a connection of this age, because the server's name or the sentinels may lead to
/// another server now.
const GREATEST_AGE: Duration = Duration::from_secs(30 * 60);

/// If a connection is at least this old, a `NOREPLICAS` error makes the store open a new connection. The new
/// connection may lead to another master.
const LEAST_AGE: Duration = Duration::from_secs(1);

/// Where connections come from.
pub(super) enum Source {
    /// One server.
    Server(Box<Client>),
    /// The master that the sentinels report.
    #[cfg(feature = "sentinel")]
    Sentinel(Box<super::sentinel::Sentinels>),
}

/// The connection to the server or cluster. Cheap to clone.
#[derive(Clone)]
pub(super) enum Connection {
    Own(Arc<Reconnecting>),
    #[cfg(feature = "cluster")]
    Cluster(redis::cluster_async::ClusterConnection),
}

/// A master of a cluster. Without a cluster, each value means the single server.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "cluster"), allow(dead_code, reason = "there is one server only"))]
pub(super) enum Node<'a> {
    OfKey(&'a [u8]),
    OfSlot(u16),
}

/// An open connection and the time when it was opened, or the attempt to open one. All callers share this
/// connection or attempt.
type Attempt = Shared<BoxFuture<'static, Result<(Instant, MultiplexedConnection), StoreError>>>;

/// Whether a connection that was opened at this time must be replaced.
pub(super) fn is_too_old(opened: Instant) -> bool {
    opened.elapsed() >= GREATEST_AGE
}

/// A connection to one server. It is replaced when it no longer works or is too old.
pub(super) struct Reconnecting {
    pub(super) source: Arc<Source>,
    pub(super) answer_within: Duration,
    current: Mutex<Option<Attempt>>,
}

impl Source {
    /// Opens a connection that the current runtime drives. `answer_within` limits the time of connecting and
    /// of each answer; with `None`, these times have no limit.
    pub(super) async fn connect(
        &self,
        answer_within: Option<Duration>,
    ) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(answer_within)
            .set_response_timeout(answer_within)
            .set_pipeline_buffer_size(QUEUE);
        match self {
            Self::Server(client) => client.get_multiplexed_async_connection_with_config(&config).await,
            #[cfg(feature = "sentinel")]
            Self::Sentinel(sentinels) => sentinels.client()?.get_async_connection_with_config(&config).await,
        }
    }
}

impl Reconnecting {
    pub(super) fn new(source: Source, answer_within: Duration) -> Self {
        Self { source: Arc::new(source), answer_within, current: Mutex::default() }
    }

    fn current(&self) -> MutexGuard<'_, Option<Attempt>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the open connection, the running attempt to open one, or a new attempt.
    fn attempt(&self) -> Attempt {
        let mut current = self.current();
        if let Some(attempt) = &*current {
            match attempt.peek() {
                Some(Ok((opened, _))) if is_too_old(*opened) => {}
                Some(Err(_)) => {}
                _ => return attempt.clone(),
            }
        }
        let (source, answer_within) = (self.source.clone(), self.answer_within);
        let connecting = async move {
            let connection = source.connect(Some(answer_within)).await.map_err(failure::connecting)?;
            Ok((Instant::now(), connection))
        };
        current.insert(apart(connecting).boxed().shared()).clone()
    }

    /// Sends the commands on the connection. Stops using the connection if an error shows that the connection
    /// no longer works, or that its server may not be the master any more. An error of the server is returned
    /// as an answer.
    async fn send(&self, commands: &Pipeline) -> Result<Vec<Value>, StoreError> {
        let attempt = self.attempt();
        let (opened, mut connection) = attempt.clone().await?;
        let answers = connection.req_packed_commands(commands, 0, commands.len()).await;
        let error = match &answers {
            Ok(answers) => answers.iter().find_map(|answer| match answer {
                Value::ServerError(error) => Some(RedisError::from(error.clone())),
                _ => None,
            }),
            Err(error) => Some(error.clone()),
        };
        if error.is_some_and(|error| is_of_no_use(&error) || may_be_demoted(&error, opened)) {
            self.current().take_if(|current| current.ptr_eq(&attempt));
        }
        answers.map_err(failure::asking)
    }
}

/// Whether an error means that the connection is broken or silent, or that its server is not the master any
/// more.
pub(super) fn is_of_no_use(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Io | ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
    ) || error.is_unrecoverable_error()
}

/// Whether an error may mean that the sentinels, or the server's name, now lead to another master. A master
/// that has lost its replicas may learn late that one of them was promoted.
pub(super) fn may_be_demoted(error: &RedisError, opened: Instant) -> bool {
    error.code() == Some("NOREPLICAS") && opened.elapsed() >= LEAST_AGE
}

impl Connection {
    async fn send(&self, command: &Cmd) -> Result<RedisResult<Value>, StoreError> {
        match self {
            Self::Own(own) => {
                let mut one = Pipeline::with_capacity(1);
                one.add_command(command.clone());
                let answer = own.send(&one).await?.pop().ok_or_else(misunderstood)?;
                Ok(answer.extract_error())
            }
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => {
                Ok(cluster.clone().req_packed_command(command).await.and_then(Value::extract_error))
            }
        }
    }

    /// Sends a request once. If the server does not know the script, sends the request again with the
    /// script's text.
    pub(super) async fn ask(&self, request: &Request) -> Result<Value, StoreError> {
        let mut answer = self.send(&request.command).await?;
        if matches!(&answer, Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)) {
            answer = self.send(&request.clone().with_body().command).await?;
        }
        answer.map_err(|error| self.failed(error))
    }

    /// Sends all commands once, to one node. If the server returns an error for a command, that error is the
    /// answer to this command.
    pub(super) async fn ask_each(
        &self,
        commands: &Pipeline,
        #[cfg_attr(not(feature = "cluster"), allow(unused_variables, reason = "there is one server only"))]
        node: Node<'_>,
    ) -> Result<Vec<Result<Value, StoreError>>, StoreError> {
        let answers = match self {
            Self::Own(own) => own.send(commands).await?,
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => {
                super::cluster::send_all(cluster, commands, node).await.map_err(|error| self.failed(error))?
            }
        };
        let answer = |answer: Value| answer.extract_error().map_err(|error| self.failed(error));
        Ok(answers.into_iter().map(answer).collect())
    }

    /// Sends all requests once, and then `WAIT` for `replicas` replicas, for at most `time`. Returns the
    /// answers, and how many replicas have the requests. All commands go on one connection, which answers
    /// nothing else meanwhile.
    pub(super) async fn ask_replicated(
        &self,
        requests: &[Request],
        node: Node<'_>,
        replicas: u32,
        time: Duration,
    ) -> Result<(Vec<Result<Value, StoreError>>, u32), StoreError> {
        let mut all = Pipeline::new();
        for request in requests {
            all.add_command((*request.command).clone());
        }
        all.cmd("WAIT").arg(replicas).arg(u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1));
        let mut answers = self.ask_each(&all, node).await?;
        let have = answers.pop().filter(|_| answers.len() == requests.len()).ok_or_else(misunderstood)?;
        Ok((answers, understood(have?)?))
    }

    /// The lowest slot of each master of a cluster; for a single server, only 0.
    pub(super) async fn masters(&self) -> Result<BTreeSet<u16>, StoreError> {
        #[cfg(feature = "cluster")]
        if self.is_cluster() {
            let mut slots = redis::cmd("CLUSTER");
            slots.arg("SLOTS");
            return super::cluster::masters(self.ask(&Request::plain(slots)).await?);
        }
        Ok(BTreeSet::from([0]))
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.own().is_none()
    }

    /// The connection to one server; `None` for a cluster.
    pub(super) const fn own(&self) -> Option<&Arc<Reconnecting>> {
        match self {
            Self::Own(own) => Some(own),
            #[cfg(feature = "cluster")]
            Self::Cluster(_) => None,
        }
    }

    /// The store error for an error of the client. The connection to a cluster retries by itself, so the
    /// error of the last try does not tell what earlier tries did.
    fn failed(&self, error: RedisError) -> StoreError {
        let error = failure::asking(error);
        if self.is_cluster() && error.is_transient() && !error.is_outcome_unknown() {
            return StoreError::outcome_unknown(error.to_string());
        }
        error
    }
}
