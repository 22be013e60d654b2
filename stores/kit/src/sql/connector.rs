//! Opens connections, and closes those that are too old or lead to the wrong server.

use std::time::Duration;

use idem_core::StoreError;
use idem_core::inspection::Inspection;
use tokio::time::{Instant, timeout};

use super::encryption::Encryption;
use super::failure::Refusal;
use super::hosts::Host;
use super::source::Source;
use crate::group_commit::Failure;
use crate::retry::retried;

/// How a store opens a connection.
pub trait Opener: Clone + Send + Sync + 'static {
    /// The server's name, for people.
    const PRODUCT: &'static str;
    /// The driver's options of a connection.
    type Options: Clone + Send + Sync + 'static;
    /// An open connection.
    type Session: Session;

    /// Opens a connection to this server with these options.
    fn open(
        &self,
        options: Self::Options,
        host: &Host,
    ) -> impl Future<Output = Result<Self::Session, Refusal>> + Send;

    /// The server's address, without user and password.
    fn address(options: &Self::Options) -> String;

    /// The database that the options name.
    fn database(options: &Self::Options) -> &str;

    /// Who can read the data of a connection with these options.
    fn encryption(options: &Self::Options) -> Encryption;
}

/// An open connection. It lives in the runtime that opened it.
pub trait Session: Send + 'static {
    /// The server and the age of the connection, and whether the connection may be used again.
    fn usage(&self) -> &Use;

    /// Closes the connection within `time`. Ignores errors, because the server may be gone.
    fn close(self, time: Duration) -> impl Future<Output = ()> + Send + 'static;
}

/// The server and the age of a session, and whether the session may be used again.
#[derive(Debug)]
pub struct Use {
    host: Host,
    opened: Instant,
    /// False while a statement runs, because the connection is in an undefined state if the future of the
    /// statement is dropped. Also false after the session was taken out of use.
    is_usable: bool,
}

impl Use {
    /// The state of a new session on this server.
    #[must_use]
    pub fn new(host: Host) -> Self {
        Self { host, opened: Instant::now(), is_usable: true }
    }

    /// The server.
    #[must_use]
    pub const fn host(&self) -> &Host {
        &self.host
    }

    /// Whether the session may be used again.
    #[must_use]
    pub const fn is_usable(&self) -> bool {
        self.is_usable
    }

    /// Begins an exchange with the server. The caller passes the returned value to [`end`](Self::end).
    pub const fn begin(&mut self) -> bool {
        std::mem::replace(&mut self.is_usable, false)
    }

    /// Ends an exchange. A session that was unusable before remains unusable.
    pub const fn end(&mut self, was_usable: bool, is_usable: bool) {
        self.is_usable = was_usable && is_usable;
    }

    /// Takes the session out of use. The store then opens a new session, which may lead to another server.
    pub const fn leave(&mut self) {
        self.is_usable = false;
    }
}

/// Opens connections.
#[derive(Clone)]
pub struct Connector<O: Opener> {
    /// How to open a connection.
    pub opener: O,
    source: Source<O::Options>,
    timeout: Duration,
    max_age: Duration,
}

impl<O: Opener> Connector<O> {
    /// A connector to these servers. An operation takes at most `timeout`. A session older than `max_age` is
    /// replaced.
    pub const fn new(opener: O, source: Source<O::Options>, timeout: Duration, max_age: Duration) -> Self {
        Self { opener, source, timeout, max_age }
    }

    /// How long an operation may take.
    pub const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Opens a connection to the first server that accepts it and meets the URL's conditions.
    ///
    /// Each server except the last may take at most half of the remaining time, so that the others have some
    /// time too. An error that every server would return, such as a wrong password, ends the search.
    ///
    /// # Errors
    ///
    /// The error that ended the search; otherwise the error of the only server, or a list of all errors.
    pub async fn connect(&self) -> Result<O::Session, StoreError> {
        let begin = Instant::now();
        let mut refusals = Vec::new();
        let mut hosts = self.source.in_turn().peekable();
        while let Some(host) = hosts.next() {
            let remaining = self.timeout.saturating_sub(begin.elapsed());
            let time = if hosts.peek().is_some() { remaining / 2 } else { remaining };
            let opened = timeout(time, self.open(&host)).await.unwrap_or_else(|_| {
                let error = format!("the server did not accept the connection within {time:.1?}");
                Err(StoreError::unavailable(error).into())
            });
            match opened {
                Ok(session) => {
                    host.prefer();
                    return Ok(session);
                }
                Err(Refusal { error, is_of_this_server: true }) => refusals.push((host, error)),
                Err(Refusal { error, .. }) => return Err(error),
            }
        }
        Err(self.nowhere(refusals))
    }

    async fn open(&self, host: &Host) -> Result<O::Session, Refusal> {
        let options = self.source.options(host).await?;
        O::encryption(&options).report(O::PRODUCT);
        self.opener.open(options, host).await
    }

    /// The error if no server is usable: the error of the only server, or a list of all errors.
    fn nowhere(&self, refusals: Vec<(Host, StoreError)>) -> StoreError {
        let refusals = match <[_; 1]>::try_from(refusals) {
            Ok([(_, error)]) => return error,
            Err(refusals) => refusals,
        };
        let is_transient = refusals.iter().any(|(_, error)| error.is_transient());
        let each = refusals.iter().map(|(host, error)| {
            let error = error.to_string();
            // Leaves out the words with which all errors of the same kind begin.
            let detail = error.split_once(": ").map_or(&*error, |(_, detail)| detail);
            format!("{}: {detail}", O::address(&self.source.base(host.index())))
        });
        let error = format!("no server of the URL is of use: {}", each.collect::<Vec<_>>().join("; "));
        if is_transient { StoreError::unavailable(error) } else { StoreError::configuration(error) }
    }

    /// Returns this session if it can be used again, is not too old, and is on the server that new
    /// connections try first. Otherwise, ends the session. There is a limit for the age, because a host name
    /// may lead to another server later.
    pub async fn kept(&self, session: O::Session) -> Option<O::Session> {
        let Use { host, opened, is_usable } = session.usage();
        if *is_usable && opened.elapsed() < self.max_age && host.is_first() {
            return Some(session);
        }
        if *is_usable {
            session.close(self.timeout).await;
        }
        None
    }

    /// Runs `work` on a separate connection, so that no batch waits for it. After a transient error, runs
    /// `work` again on a new connection. `work` returns the session, which is then closed.
    ///
    /// # Errors
    ///
    /// The errors of the connection and of the work.
    pub async fn apart<T, F>(&self, work: impl Fn(O::Session) -> F + Send + Sync) -> Result<T, StoreError>
    where
        T: Send,
        F: Future<Output = (Result<T, Failure>, O::Session)> + Send,
    {
        retried(self.timeout, || async {
            let session = self.connect().await?;
            let Ok((done, session)) = timeout(self.timeout, work(session)).await else {
                return Err(Failure::late(self.timeout).error());
            };
            session.close(self.timeout).await;
            done.map_err(Failure::error)
        })
        .await
    }

    /// Purges at most `limit` records on a separate connection. `batch` gets the number of records to read,
    /// which is at most `most`. It deletes the expired records among them, and returns how many it read and
    /// how many it deleted.
    ///
    /// # Errors
    ///
    /// The errors of the connection, and of a batch if no earlier batch deleted a record. After a deletion,
    /// an error only ends the purge; the next purge reports that error if it persists.
    pub async fn purge<F>(
        &self,
        limit: usize,
        most: usize,
        batch: impl Fn(O::Session, usize) -> F + Send + Sync,
    ) -> Result<usize, StoreError>
    where
        F: Future<Output = (Result<(usize, usize), Failure>, O::Session)> + Send,
    {
        let mut session = retried(self.timeout, || self.connect()).await?;
        let mut purged = 0;
        while purged < limit {
            let count = most.min(limit - purged);
            let done = match timeout(self.timeout, batch(session, count)).await {
                Ok((done, back)) => done.map(|done| (done, back)),
                Err(_) => Err(Failure::late(self.timeout)),
            };
            let ((looked_at, deleted), back) = match done {
                Ok(done) => done,
                Err(failure) if purged == 0 => return Err(failure.error()),
                Err(_) => return Ok(purged),
            };
            session = back;
            purged += deleted;
            if looked_at < count {
                break;
            }
        }
        session.close(self.timeout).await;
        Ok(purged)
    }

    /// The options for a connection to the server that new connections try first.
    ///
    /// # Errors
    ///
    /// The error of the function that completes the options.
    pub async fn options(&self) -> Result<O::Options, StoreError> {
        self.source.options(&self.source.first()).await
    }

    /// Reports whether connections must be encrypted.
    ///
    /// # Errors
    ///
    /// The error of the function that completes the options.
    pub async fn find_encryption(&self, inspection: &mut Inspection) -> Result<(), StoreError> {
        let mut servers = Vec::new();
        for host in self.source.in_turn() {
            servers.push(O::encryption(&self.source.options(&host).await?));
        }
        Encryption::find(&servers, inspection);
        Ok(())
    }

    /// The addresses of the servers and the database, without user and password.
    pub fn place(&self) -> String {
        let servers = self.source.bases();
        let addresses: Vec<_> = servers.iter().map(O::address).collect();
        format!("{} database {}", addresses.join(","), servers.first().map_or("", O::database))
    }
}
