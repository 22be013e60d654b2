//! Connections to the server, and when to make a new one.
//!
//! It knows nothing of records. Everything here runs in the stores' own runtime, so a caller whose thread is blocked or whose runtime ended holds up nobody; what
//! may be asked faster is in `runtime_connections`.
//!
//! The client's own `ConnectionManager` is not used: it keeps a connection that does not answer any more
//! or that leads to a master which became a replica, and it asks again by itself, on top of `retried`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind, Value,
};
use tokio::sync::Mutex;

use super::failure;
use super::scripts::Request;
use idem_core::StoreError;

/// How many requests may stand in line for the connection before their callers wait for room.
const QUEUE: usize = 1_024;

/// Where connections come from.
pub(super) enum Source {
    /// One server.
    Server(Box<Client>),
    /// The master that the sentinels name.
    #[cfg(feature = "sentinel")]
    Sentinel(Box<super::sentinel::Sentinels>),
}

/// The way to the server or cluster. Cheap to clone.
#[derive(Clone)]
pub(super) enum Connection {
    Own(Arc<Reconnecting>),
    Given(Arc<dyn Given>),
}

/// A connection that somebody else made, and keeps alive.
pub(super) trait Given: Send + Sync {
    fn ask<'a>(&self, command: &'a Cmd) -> BoxFuture<'a, RedisResult<Value>>;
    /// All of them on one connection, in this order and nothing between.
    fn ask_all<'a>(
        &self,
        commands: &'a Pipeline,
        count: usize,
        node: Node<'a>,
    ) -> BoxFuture<'a, RedisResult<Vec<Value>>>;
    fn is_cluster(&self) -> bool {
        false
    }
}

/// A master of a cluster; without one, the server.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "cluster"), allow(dead_code, reason = "there is one server only"))]
pub(super) enum Node<'a> {
    OfKey(&'a [u8]),
    OfSlot(u16),
}

/// Any connection that is not a cluster's.
pub(super) struct Single<C>(pub(super) C);

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Given for Single<C> {
    fn ask<'a>(&self, command: &'a Cmd) -> BoxFuture<'a, RedisResult<Value>> {
        let mut connection = self.0.clone();
        Box::pin(async move { connection.req_packed_command(command).await })
    }

    fn ask_all<'a>(
        &self,
        commands: &'a Pipeline,
        count: usize,
        _: Node<'a>,
    ) -> BoxFuture<'a, RedisResult<Vec<Value>>> {
        let mut connection = self.0.clone();
        Box::pin(async move { connection.req_packed_commands(commands, 0, count).await })
    }
}

#[cfg(feature = "cluster")]
impl Given for redis::cluster_async::ClusterConnection {
    fn ask<'a>(&self, command: &'a Cmd) -> BoxFuture<'a, RedisResult<Value>> {
        let mut connection = self.clone();
        Box::pin(async move { connection.req_packed_command(command).await })
    }

    fn ask_all<'a>(
        &self,
        commands: &'a Pipeline,
        count: usize,
        node: Node<'a>,
    ) -> BoxFuture<'a, RedisResult<Vec<Value>>> {
        use redis::cluster_routing::{Route, SingleNodeRoutingInfo, SlotAddr};

        let mut connection = self.clone();
        let route = match node {
            Node::OfKey(key) => Route::with_key(key, SlotAddr::Master),
            Node::OfSlot(slot) => Route::new(slot, SlotAddr::Master),
        };
        let node = SingleNodeRoutingInfo::SpecificNode(route);
        Box::pin(async move { connection.route_pipeline(commands.clone(), 0, count, node).await })
    }

    fn is_cluster(&self) -> bool {
        true
    }
}

/// Connections to one server: one at a time, a new one when it is of no use any more.
pub(super) struct Reconnecting {
    source: Arc<Source>,
    answer_within: Duration,
    slot: StdMutex<Slot>,
    /// Held by the one that connects.
    connecting: Mutex<Option<StoreError>>,
    /// How many attempts to connect there were.
    attempts: AtomicU64,
}

#[derive(Default)]
struct Slot {
    number: u64,
    connection: Option<MultiplexedConnection>,
}

impl Reconnecting {
    pub(super) fn new(source: Arc<Source>, answer_within: Duration) -> Self {
        let (slot, connecting) = (StdMutex::default(), Mutex::default());
        Self { source, answer_within, slot, connecting, attempts: AtomicU64::new(0) }
    }

    pub(super) const fn answer_within(&self) -> Duration {
        self.answer_within
    }

    /// A connection of the runtime this is called in, which watches no time.
    pub(super) async fn connect_here(&self) -> RedisResult<MultiplexedConnection> {
        self.connect(None).await
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> Option<(u64, MultiplexedConnection)> {
        let slot = self.slot();
        Some((slot.number, slot.connection.clone()?))
    }

    /// A connection and its number. Who waits while another connects shares what comes of it.
    async fn connection(&self) -> Result<(u64, MultiplexedConnection), StoreError> {
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let seen = self.attempts.load(Ordering::Acquire);
        let mut failed = self.connecting.lock().await;
        if let Some(current) = self.current() {
            return Ok(current);
        }
        if self.attempts.load(Ordering::Acquire) != seen
            && let Some(error) = &*failed
        {
            return Err(error.clone());
        }
        let made = self.connect(Some(self.answer_within)).await;
        self.attempts.fetch_add(1, Ordering::AcqRel);
        match made {
            Ok(connection) => {
                *failed = None;
                let mut slot = self.slot();
                slot.number += 1;
                slot.connection = Some(connection.clone());
                Ok((slot.number, connection))
            }
            Err(error) => {
                let error = failure::connecting(error);
                *failed = Some(error.clone());
                Err(error)
            }
        }
    }

    async fn connect(&self, answer_within: Option<Duration>) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(answer_within)
            .set_response_timeout(answer_within)
            .set_pipeline_buffer_size(QUEUE);
        match &*self.source {
            Source::Server(client) => client.get_multiplexed_async_connection_with_config(&config).await,
            #[cfg(feature = "sentinel")]
            Source::Sentinel(sentinels) => {
                sentinels.client()?.get_async_connection_with_config(&config).await
            }
        }
    }

    /// Takes a connection out of use, unless that was done.
    fn leave(&self, number: u64) {
        let mut slot = self.slot();
        if slot.number == number {
            slot.connection = None;
        }
    }

    /// Asks on the connection there is, and leaves it if the error says that it is of no use.
    async fn on<T>(
        &self,
        ask: impl AsyncFnOnce(MultiplexedConnection) -> RedisResult<T>,
    ) -> Result<RedisResult<T>, StoreError> {
        let (number, connection) = self.connection().await?;
        let answer = ask(connection).await;
        if let Err(error) = &answer
            && is_of_no_use(error)
        {
            self.leave(number);
        }
        Ok(answer)
    }
}

/// Broken, silent, or to a server that is not the master any more.
pub(super) fn is_of_no_use(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Io | ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
    ) || error.is_unrecoverable_error()
}

impl Connection {
    async fn send(&self, command: &Cmd) -> Result<RedisResult<Value>, StoreError> {
        match self {
            Self::Own(own) => {
                own.on(async |mut connection| connection.req_packed_command(command).await).await
            }
            Self::Given(given) => Ok(given.ask(command).await),
        }
    }

    async fn send_all(
        &self,
        commands: &Pipeline,
        count: usize,
        node: Node<'_>,
    ) -> Result<RedisResult<Vec<Value>>, StoreError> {
        match self {
            Self::Own(own) => {
                own.on(async |mut connection| connection.req_packed_commands(commands, 0, count).await).await
            }
            Self::Given(given) => Ok(given.ask_all(commands, count, node).await),
        }
    }

    /// Another way to the same server, if there is one: what blocks that one does not block this.
    pub(super) fn another(&self) -> Self {
        match self {
            Self::Own(own) => Self::Own(Arc::new(Reconnecting::new(own.source.clone(), own.answer_within))),
            Self::Given(given) => Self::Given(given.clone()),
        }
    }

    /// Asks once. A script that the server does not know is sent along.
    pub(super) async fn ask(&self, request: &Request) -> Result<Value, StoreError> {
        let mut answer = flat(self.send(&request.command).await?);
        if answer.as_ref().is_err_and(is_unknown_script)
            && let Some(call) = request.with_body()
        {
            answer = flat(self.send(&call).await?);
        }
        answer.map_err(|error| self.failed(error))
    }

    /// Asks all of them once, and how many of `replicas` have them within `time`: on one connection, which answers
    /// nothing else meanwhile.
    pub(super) async fn ask_replicated(
        &self,
        requests: &[Request],
        node: Node<'_>,
        replicas: u32,
        time: Duration,
    ) -> Result<(Vec<Result<Value, StoreError>>, u32), StoreError> {
        let commands = requests.iter().map(|request| (*request.command).clone());
        let (mut answers, mut have) = self.send_and_wait(commands, node, replicas, time).await?;
        let unknown = |(number, request): (usize, &Request)| {
            let call = request.with_body().filter(|_| answers[number].as_ref().is_err_and(is_unknown_script));
            call.map(|call| (number, call))
        };
        let (numbers, calls): (Vec<usize>, Vec<Cmd>) =
            requests.iter().enumerate().filter_map(unknown).unzip();
        if !calls.is_empty() {
            let (again, have_now) = self.send_and_wait(calls.into_iter(), node, replicas, time).await?;
            for (number, answer) in numbers.into_iter().zip(again) {
                answers[number] = answer;
            }
            have = have.min(have_now);
        }
        Ok((answers.into_iter().map(|answer| answer.map_err(|error| self.failed(error))).collect(), have))
    }

    /// Sends the commands and `WAIT`; an answer to each, and to that.
    async fn send_and_wait(
        &self,
        commands: impl ExactSizeIterator<Item = Cmd>,
        node: Node<'_>,
        replicas: u32,
        time: Duration,
    ) -> Result<(Vec<RedisResult<Value>>, u32), StoreError> {
        let count = commands.len() + 1;
        let mut all = Pipeline::new();
        for command in commands {
            all.add_command(command);
        }
        all.cmd("WAIT").arg(replicas).arg(u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1));
        let answers = self.send_all(&all, count, node).await?;
        let mut answers = answers.map_err(|error| self.failed(error))?;
        let have = match answers.pop() {
            Some(Value::Int(have)) if answers.len() + 1 == count => u32::try_from(have).unwrap_or(0),
            Some(error @ Value::ServerError(_)) => {
                let refused = flat(Ok(error)).map(drop);
                return Err(refused.map_or_else(|error| self.failed(error), |()| failure::misunderstood()));
            }
            _ => return Err(failure::misunderstood()),
        };
        Ok((answers.into_iter().map(Value::extract_error).collect(), have))
    }

    /// Asks all of them once, on one node.
    pub(super) async fn ask_all(
        &self,
        commands: &Pipeline,
        count: usize,
        node: Node<'_>,
    ) -> Result<Vec<Value>, StoreError> {
        flat_all(self.send_all(commands, count, node).await?).map_err(|error| self.failed(error))
    }

    /// As [`ask_all`](Self::ask_all); where the server refuses one, its error takes the place of the answer.
    pub(super) async fn ask_each(
        &self,
        commands: &Pipeline,
        count: usize,
        node: Node<'_>,
    ) -> Result<Vec<Value>, StoreError> {
        self.send_all(commands, count, node).await?.map_err(|error| self.failed(error))
    }

    pub(super) fn is_cluster(&self) -> bool {
        match self {
            Self::Own(_) => false,
            Self::Given(given) => given.is_cluster(),
        }
    }

    /// What an error means. A connection of a cluster, and maybe a given one, asks again by itself: the
    /// last answer says nothing of the tries before.
    pub(super) fn failed(&self, error: RedisError) -> StoreError {
        let error = failure::asking(error);
        match self {
            Self::Given(_) if error.is_transient() && !error.is_outcome_unknown() => {
                StoreError::outcome_unknown(error.to_string())
            }
            _ => error,
        }
    }
}

fn flat_all(answers: RedisResult<Vec<Value>>) -> RedisResult<Vec<Value>> {
    answers?.into_iter().map(Value::extract_error).collect()
}

fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// A server's error is an error.
fn flat(answer: RedisResult<Value>) -> RedisResult<Value> {
    answer.and_then(Value::extract_error)
}
