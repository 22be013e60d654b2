//! How connections are opened and set up.
//!
//! Settings travel with the startup message, so they cost no exchange and can never reach another client of a pooler. A
//! pooler that does not pass them on shares its sessions: there each transaction brings its own settings.

use std::str::FromStr as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Connection as _, PgPool};
use tokio::time::timeout;

use super::failure;
use super::session::Session;
use idem_core::StoreError;

type Refresh =
    Arc<dyn Fn(PgConnectOptions) -> BoxFuture<'static, Result<PgConnectOptions, StoreError>> + Send + Sync>;

/// Where the server is and who connects, as it is when a connection is opened: passwords and tokens change.
#[derive(Clone)]
pub(crate) struct Source {
    base: Base,
    refresh: Option<Refresh>,
}

#[derive(Clone)]
enum Base {
    Fixed(Box<PgConnectOptions>),
    /// Whose options its owner may replace.
    Pool(PgPool),
}

impl Source {
    /// The options of a URL.
    pub(crate) fn of_url(url: &str) -> Result<Self, StoreError> {
        // The driver accepts any scheme. What is there instead may be a password, so it is not repeated.
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            let options = PgConnectOptions::from_str(url).map_err(|error| failure::of_connect(&error))?;
            Ok(Self { base: Base::Fixed(Box::new(options)), refresh: None })
        } else {
            Err(StoreError::configuration("the URL of the database must begin with `postgres://`"))
        }
    }

    /// The options that the pool has at each time.
    pub(crate) fn of_pool(pool: &PgPool) -> Self {
        Self { base: Base::Pool(pool.clone()), refresh: None }
    }

    /// Has `refresh` complete the options before each connection is opened.
    pub(crate) fn refreshed<F, R, E>(mut self, refresh: F) -> Self
    where
        F: Fn(PgConnectOptions) -> R + Send + Sync + 'static,
        R: Future<Output = Result<PgConnectOptions, E>> + Send + 'static,
        E: std::fmt::Display,
    {
        self.refresh = Some(Arc::new(move |options| {
            let refreshing = refresh(options);
            Box::pin(async move {
                refreshing.await.map_err(|error| {
                    StoreError::unavailable(format!(
                        "the options of the connection are not available: {error}"
                    ))
                })
            })
        }));
        self
    }

    fn base(&self) -> PgConnectOptions {
        match &self.base {
            Base::Fixed(options) => options.as_ref().clone(),
            Base::Pool(pool) => pool.connect_options().as_ref().clone(),
        }
    }

    async fn options(&self) -> Result<PgConnectOptions, StoreError> {
        match &self.refresh {
            Some(refresh) => refresh(self.base()).await,
            None => Ok(self.base()),
        }
    }

    /// Where server and database are: no user, no password.
    pub(crate) fn place(&self) -> String {
        let options = self.base();
        let database = options.get_database().unwrap_or(options.get_username());
        match options.get_socket() {
            Some(socket) => format!("{} database {database}", socket.display()),
            None => format!("{}:{} database {database}", options.get_host(), options.get_port()),
        }
    }
}

/// Opens connections.
#[derive(Clone)]
pub(crate) struct Connector {
    source: Source,
    timeout: Duration,
    lock_timeout: Duration,
    max_age: Duration,
    /// How a transaction begins in a session that a pooler shares.
    begin: Arc<str>,
    /// Whether a pooler keeps the settings from the server, found out by connecting.
    shared: Arc<AtomicBool>,
}

/// What each session or transaction is set to. Statements over arrays look up each key by the primary key. Left to itself
/// on a table that was never analyzed, the planner reads the whole table instead, and keeps to that plan.
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

    /// Opens a connection.
    pub(crate) async fn connect(&self) -> Result<Session, StoreError> {
        timeout(self.timeout, self.open()).await.unwrap_or_else(|_| {
            Err(StoreError::unavailable(format!(
                "the server did not accept the connection within {:?}",
                self.timeout
            )))
        })
    }

    async fn open(&self) -> Result<Session, StoreError> {
        let options = self.source.options().await?.disable_statement_logging();
        super::encryption::report(&options);
        if !self.is_shared() {
            let own = options
                .clone()
                .options(settings(self.timeout, self.lock_timeout))
                .options([("default_transaction_isolation", "read committed")]);
            match PgConnection::connect_with(&own).await {
                Ok(connection) => return Ok(Session::new(connection, None)),
                Err(error) if failure::refuses_startup_options(&error) => self.share(),
                Err(error) => return Err(failure::of_connect(&error)),
            }
        }
        let connection = PgConnection::connect_with(&options.extra_float_digits(None)).await;
        let connection = connection.map_err(|error| failure::of_connect(&error))?;
        Ok(Session::new(connection, Some(self.begin.clone())))
    }

    /// Whether a pooler stands between, so that nothing may be left in a session.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    /// From now on every transaction brings its settings.
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

    /// Whether this is the lock timeout, in milliseconds, of a session with our settings.
    pub(super) fn has_set(&self, lock_timeout: Option<&str>) -> bool {
        lock_timeout == Some(millis(self.lock_timeout).as_str())
    }

    /// The options for a connection that only listens.
    #[cfg(feature = "outbox")]
    pub(crate) async fn listening(&self) -> Result<PgConnectOptions, StoreError> {
        Ok(self.source.options().await?.disable_statement_logging())
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
