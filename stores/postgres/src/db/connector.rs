//! How connections are opened and set up.
//!
//! Settings are part of the startup message, so they cannot reach another client of a pooler. If a pooler does not pass them
//! on, it shares its sessions: then each transaction sets its own settings, and no statement has a name. Each connection is
//! asked for a mark in its settings: through a pooler that nobody has found, the name of a statement may mean another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[cfg(feature = "outbox")]
use sqlx::postgres::PgConnectOptions;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, Row as _};
use tokio::time::{Instant, timeout};

use super::failure::{self, Refusal};
use super::hosts::Host;
use super::session::Session;
use super::source::Source;
use idem_core::StoreError;
use idem_core::inspection::Inspection;
use idem_core::protocol::Owner;

/// Opens connections.
#[derive(Clone)]
pub(crate) struct Connector {
    source: Source,
    timeout: Duration,
    lock_timeout: Duration,
    max_age: Duration,
    /// The start of each transaction in a session that a pooler shares.
    begin: Arc<str>,
    /// Whether a pooler does not pass the settings to the server.
    shared: Arc<AtomicBool>,
}

/// A setting with another value in each session: one that has its own has the other settings, too.
const MARK: &str = "idem.session";

/// A name of the session that no other of its server had or will have.
const NAME: &str =
    "(SELECT pid || ' ' || backend_start FROM pg_stat_activity WHERE pid = pg_catalog.pg_backend_pid())";

/// The settings of each session or transaction. They make statements over arrays look up each key by the primary key. Without them,
/// the planner may read the whole of a table that was never analyzed, and keep that plan.
fn settings(timeout: Duration, lock_timeout: Duration) -> [(&'static str, String); 8] {
    let off = || "off".to_owned();
    [
        ("statement_timeout", timeout.as_millis().max(1).to_string()),
        ("lock_timeout", millis(lock_timeout)),
        ("enable_seqscan", off()),
        ("enable_hashjoin", off()),
        ("enable_mergejoin", off()),
        ("enable_bitmapscan", off()),
        ("plan_cache_mode", "force_generic_plan".to_owned()),
        ("jit", off()),
    ]
}

fn millis(time: Duration) -> String {
    time.as_millis().max(1).to_string()
}

impl Connector {
    pub(crate) fn new(source: Source, timeout: Duration, lock_timeout: Duration, max_age: Duration) -> Self {
        let local =
            settings(timeout, lock_timeout).map(|(name, value)| format!("; SET LOCAL {name} = {value}"));
        let begin = format!("BEGIN ISOLATION LEVEL READ COMMITTED{}", local.concat()).into();
        Self { source, timeout, lock_timeout, max_age, begin, shared: Arc::default() }
    }

    /// Opens a connection to the first server that accepts it and is the right one.
    ///
    /// A server that is wrong or does not answer takes half of the time that is left, so that others have some too. An
    /// error that no server would answer otherwise, such as a wrong password, ends the search.
    pub(crate) async fn connect(&self) -> Result<Session, StoreError> {
        let begin = Instant::now();
        let mut refusals = Vec::new();
        let mut hosts = self.source.in_turn().peekable();
        while let Some(host) = hosts.next() {
            let left = self.timeout.saturating_sub(begin.elapsed());
            let time = if hosts.peek().is_some() { left / 2 } else { left };
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

    /// The error where no server is of use: that of the only one, or a list.
    fn nowhere(&self, refusals: Vec<(Host, StoreError)>) -> StoreError {
        let refusals = match <[_; 1]>::try_from(refusals) {
            Ok([(_, error)]) => return error,
            Err(refusals) => refusals,
        };
        let is_transient = refusals.iter().any(|(_, error)| error.is_transient());
        let each = refusals.iter().map(|(host, error)| {
            let error = error.to_string();
            // Without the words that every error of its kind begins with.
            let detail = error.split_once(": ").map_or(&*error, |(_, detail)| detail);
            format!("{}: {detail}", self.source.address(host))
        });
        let error = format!("no server of the URL is of use: {}", each.collect::<Vec<_>>().join("; "));
        if is_transient { StoreError::unavailable(error) } else { StoreError::configuration(error) }
    }

    async fn open(&self, host: &Host) -> Result<Session, Refusal> {
        let options = self.source.options(host).await?.disable_statement_logging();
        super::encryption::report(&options);
        if !self.is_shared() {
            let mark =
                Owner::random().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            let own = options
                .clone()
                .options(settings(self.timeout, self.lock_timeout))
                .options([("default_transaction_isolation", "read committed"), (MARK, &mark)]);
            match PgConnection::connect_with(&own).await {
                Ok(connection) => return self.checked(connection, host, Some(mark)).await,
                Err(error) if failure::refuses_startup_options(&error) => self.share(),
                Err(error) => return Err(Refusal::of_connect(&error)),
            }
        }
        let connection = PgConnection::connect_with(&options.extra_float_digits(None)).await;
        let connection = connection.map_err(|error| Refusal::of_connect(&error))?;
        self.checked(connection, host, None).await
    }

    /// A session on this connection, if the server is what the URL asks for.
    async fn checked(
        &self,
        mut connection: PgConnection,
        host: &Host,
        mark: Option<String>,
    ) -> Result<Session, Refusal> {
        let (is_right, otherwise) = self.source.target().check();
        let query = format!("SELECT pg_catalog.current_setting('{MARK}', true), {is_right}, {NAME}");
        // Without parameters, so in one exchange, and no statement stays in a session that a pooler shares.
        let row = connection.fetch_one(AssertSqlSafe(query)).await;
        let found = row.and_then(|row| {
            Ok((row.try_get::<Option<String>, _>(0)?, row.try_get::<bool, _>(1)?, row.try_get(2)?))
        });
        let (found, is_right, name): (_, _, Option<String>) =
            found.map_err(|error| Refusal::of_connect(&error))?;
        if !is_right {
            let _ = connection.close().await;
            return Err(StoreError::unavailable(otherwise).into());
        }
        let is_own = mark.is_some() && found == mark;
        if !is_own {
            self.share();
        }
        let shared = (!is_own).then(|| self.begin.clone());
        Ok(Session::new(connection, shared, name.filter(|_| is_own), host.clone()))
    }

    /// Whether a pooler shares the sessions, so that nothing may be left in them.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    /// From now on every transaction sets its own settings.
    pub(super) fn share(&self) {
        if !self.shared.swap(true, Ordering::Relaxed) {
            tracing::info!(
                target: "idem::store",
                event = "pooler_found",
                "the server does not take a session's settings, as behind a pooler: every statement brings its own, \
                 at the price of three more exchanges"
            );
        }
    }

    /// Says whether connections must be encrypted.
    pub(crate) async fn find_encryption(&self, found: &mut Inspection) -> Result<(), StoreError> {
        let mut servers = Vec::new();
        for host in self.source.in_turn() {
            servers.push(self.source.options(&host).await?);
        }
        super::encryption::find(&servers, found);
        Ok(())
    }

    /// The options for a connection that only listens, to the server that the other connections are on.
    #[cfg(feature = "outbox")]
    pub(crate) async fn listening(&self) -> Result<PgConnectOptions, StoreError> {
        Ok(self.source.options(&self.source.first()).await?.disable_statement_logging())
    }

    /// Where server and database are: no user, no password.
    pub(crate) fn place(&self) -> String {
        self.source.place()
    }

    /// How long one statement may take.
    pub(crate) const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// This session if it may be used again, and is not too old: names lead elsewhere in time.
    pub(crate) async fn kept(&self, session: Session) -> Option<Session> {
        session.kept(self.max_age, self.timeout).await
    }
}
