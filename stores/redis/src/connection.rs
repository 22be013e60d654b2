//! Connections to the server, and when to replace one.
//!
//! It knows nothing about records. Everything here runs in the stores' own runtime, so that a caller whose thread is
//! blocked or whose runtime ended holds up no other caller. The faster connections are in `runtime_connections`.
//!
//! The client's own `ConnectionManager` is not used. It keeps a connection that no longer answers, or whose server was
//! a master and became a replica, and it retries by itself in addition to `retried`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
// Not the runtime's, which a test may have paused.
use std::time::{Duration, Instant};

use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind, Value,
};
use tokio::sync::Mutex;

use super::failure;
use super::scripts::Request;
use idem_core::StoreError;

/// How many requests the connection queues before callers wait for space.
const QUEUE: usize = 1_024;

/// How old a connection may become before it is replaced.
pub(super) const GREATEST_AGE: Duration = Duration::from_secs(30 * 60);

/// How often the sentinels are asked whether a master that refuses writes is still one.
#[cfg(feature = "sentinel")]
const ASKS_SENTINELS: Duration = Duration::from_secs(1);

/// Where connections come from.
pub(super) enum Source {
    /// One server.
    Server(Box<Client>),
    /// The master that the sentinels name.
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

/// A master of a cluster. Without a cluster, it always means the server.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "cluster"), allow(dead_code, reason = "there is one server only"))]
pub(super) enum Node<'a> {
    OfKey(&'a [u8]),
    OfSlot(u16),
}

/// A connection to one server, which is replaced when it no longer works.
pub(super) struct Reconnecting {
    source: Arc<Source>,
    pub(super) answer_within: Duration,
    greatest_age: Duration,
    slot: StdMutex<Slot>,
    /// The task that connects holds this lock. It has the error of the last attempt.
    connecting: Mutex<Option<StoreError>>,
    /// The number of attempts to connect.
    attempts: AtomicU64,
}

#[derive(Default)]
struct Slot {
    number: u64,
    connection: Option<(Instant, MultiplexedConnection)>,
}

impl Reconnecting {
    pub(super) fn new(source: Arc<Source>, answer_within: Duration, greatest_age: Duration) -> Self {
        let (slot, connecting) = (StdMutex::default(), Mutex::default());
        Self { source, answer_within, greatest_age, slot, connecting, attempts: AtomicU64::new(0) }
    }

    fn another(&self) -> Self {
        Self::new(self.source.clone(), self.answer_within, self.greatest_age)
    }

    /// Whether a connection of this age must be replaced: the server's name, or the sentinels, may name another one by now.
    pub(super) fn is_too_old(&self, opened: Instant) -> bool {
        opened.elapsed() >= self.greatest_age
    }

    /// Whether the error of a connection may mean that the sentinels name another master: they promote a replica of a master that has lost
    /// all of them, and that hears of it late. They are asked at most once a second.
    pub(super) fn may_be_demoted(&self, error: &RedisError, opened: Instant) -> bool {
        #[cfg(feature = "sentinel")]
        if matches!(*self.source, Source::Sentinel(_)) {
            return error.code() == Some("NOREPLICAS") && opened.elapsed() >= ASKS_SENTINELS;
        }
        let _ = (error, opened);
        false
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> Option<(u64, MultiplexedConnection)> {
        let slot = self.slot();
        let (opened, connection) = slot.connection.as_ref()?;
        (!self.is_too_old(*opened)).then(|| (slot.number, connection.clone()))
    }

    /// A connection and its number. Callers that wait while another caller connects share the result.
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
                slot.connection = Some((Instant::now(), connection.clone()));
                Ok((slot.number, connection))
            }
            Err(error) => {
                let error = failure::connecting(error);
                *failed = Some(error.clone());
                Err(error)
            }
        }
    }

    /// A connection that the current runtime drives, with these timeouts.
    pub(super) async fn connect(
        &self,
        answer_within: Option<Duration>,
    ) -> RedisResult<MultiplexedConnection> {
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

    /// Takes the connection with this number out of use, if its error asks for that and it has not been done.
    fn leave(&self, number: u64, error: &RedisError) {
        let mut slot = self.slot();
        if slot.number == number
            && let Some((opened, _)) = &slot.connection
            && (is_of_no_use(error) || self.may_be_demoted(error, *opened))
        {
            slot.connection = None;
        }
    }

    /// Calls `ask` with the current connection, and takes the connection out of use if the error says that it no longer
    /// works. A `refusal` of the server is part of the client's answer.
    async fn on<T>(
        &self,
        ask: impl AsyncFnOnce(MultiplexedConnection) -> RedisResult<T>,
        refusal: impl FnOnce(&T) -> Option<RedisError>,
    ) -> Result<RedisResult<T>, StoreError> {
        let (number, connection) = self.connection().await?;
        let answer = ask(connection).await;
        match &answer {
            Err(error) => self.leave(number, error),
            Ok(answer) => {
                if let Some(error) = refusal(answer) {
                    self.leave(number, &error);
                }
            }
        }
        Ok(answer)
    }
}

/// Whether an error means that the connection is broken or silent, or that its server is not the master any more.
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
                own.on(async |mut connection| connection.req_packed_command(command).await, refusal).await
            }
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => Ok(cluster.clone().req_packed_command(command).await),
        }
    }

    async fn send_all(
        &self,
        commands: &Pipeline,
        count: usize,
        #[cfg_attr(not(feature = "cluster"), allow(unused_variables, reason = "there is one server only"))]
        node: Node<'_>,
    ) -> Result<RedisResult<Vec<Value>>, StoreError> {
        match self {
            Self::Own(own) => {
                own.on(
                    async |mut connection| connection.req_packed_commands(commands, 0, count).await,
                    |answers| answers.iter().find_map(refusal),
                )
                .await
            }
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => Ok(super::cluster::ask_all(cluster, commands, count, node).await),
        }
    }

    /// A separate connection to the same server, if that is possible, so that a command that blocks one does not block
    /// the other.
    pub(super) fn another(&self) -> Self {
        match self {
            Self::Own(own) => Self::Own(Arc::new(own.another())),
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => Self::Cluster(cluster.clone()),
        }
    }

    /// Sends a request once. If the server does not know the script, sends the script too.
    pub(super) async fn ask(&self, request: &Request) -> Result<Value, StoreError> {
        let mut answer = flat(self.send(&request.command).await?);
        if answer.as_ref().is_err_and(is_unknown_script)
            && let Some(call) = request.with_body()
        {
            answer = flat(self.send(&call).await?);
        }
        answer.map_err(|error| self.failed(error))
    }

    /// Sends all requests once, and returns how many replicas have them: waits at most `time` for `replicas` of them.
    /// All on one connection, which answers nothing else meanwhile.
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

    /// Sends the commands and then `WAIT`. Returns an answer to each command, and the answer to `WAIT`.
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

    /// Sends all commands once, to one node.
    pub(super) async fn ask_all(
        &self,
        commands: &Pipeline,
        count: usize,
        node: Node<'_>,
    ) -> Result<Vec<Value>, StoreError> {
        flat_all(self.send_all(commands, count, node).await?).map_err(|error| self.failed(error))
    }

    /// As [`ask_all`](Self::ask_all), but if the server refuses a command, the error replaces only its answer.
    pub(super) async fn ask_each(
        &self,
        commands: &Pipeline,
        count: usize,
        node: Node<'_>,
    ) -> Result<Vec<Value>, StoreError> {
        self.send_all(commands, count, node).await?.map_err(|error| self.failed(error))
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.own().is_none()
    }

    /// The connection to one server; none for a cluster.
    pub(super) const fn own(&self) -> Option<&Arc<Reconnecting>> {
        match self {
            Self::Own(own) => Some(own),
            #[cfg(feature = "cluster")]
            Self::Cluster(_) => None,
        }
    }

    /// The store error for an error of the client. The connection to a cluster retries by itself, so the last answer says
    /// nothing about earlier tries.
    pub(super) fn failed(&self, error: RedisError) -> StoreError {
        let error = failure::asking(error);
        if self.is_cluster() && error.is_transient() && !error.is_outcome_unknown() {
            return StoreError::outcome_unknown(error.to_string());
        }
        error
    }
}

fn refusal(answer: &Value) -> Option<RedisError> {
    matches!(answer, Value::ServerError(_)).then(|| answer.clone().extract_error().err())?
}

fn flat_all(answers: RedisResult<Vec<Value>>) -> RedisResult<Vec<Value>> {
    answers?.into_iter().map(Value::extract_error).collect()
}

fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Turns an error in the server's answer into an `Err`.
fn flat(answer: RedisResult<Value>) -> RedisResult<Value> {
    answer.and_then(Value::extract_error)
}
