//! How connections are opened.
//!
//! Neither this crate nor the driver changes a session setting. Statements contain all they need, so a
//! pooler may give the session to another client after each transaction. What is prepared belongs to the connection, also through a proxy.

use std::fmt;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{ConnectOptions as _, Connection as _, MySqlPool};
use tokio::time::timeout;

use super::encryption;
use super::failure;
use super::session::Session;
use idem_core::StoreError;
use idem_core::inspection::Inspection;

/// How many statements stay prepared in a session at most: reads, claims and completions, each for some
/// numbers of rows.
const MOST_PREPARED: usize = 32;

type Refresh = Arc<
    dyn Fn(MySqlConnectOptions) -> BoxFuture<'static, Result<MySqlConnectOptions, StoreError>> + Send + Sync,
>;

/// Returns the options for each new connection: passwords and tokens change.
#[derive(Clone)]
pub(crate) struct Source {
    base: Base,
    refresh: Option<Refresh>,
}

#[derive(Clone)]
enum Base {
    Fixed(Box<MySqlConnectOptions>),
    /// A pool, whose owner may replace the options.
    Pool(MySqlPool),
}

impl Source {
    /// The options of a URL.
    pub(crate) fn of_url(url: &str) -> Result<Self, StoreError> {
        // The driver accepts any scheme. The error does not repeat the text, which may be a password.
        if !url.starts_with("mysql://") && !url.starts_with("mariadb://") {
            return Err(StoreError::configuration("the URL of the database must begin with `mysql://`"));
        }
        let options = MySqlConnectOptions::from_str(url).map_err(|error| failure::of_connect(&error))?;
        Ok(Self { base: Base::Fixed(Box::new(options)), refresh: None })
    }

    /// The options of the pool at the time of each connection.
    pub(crate) fn of_pool(pool: &MySqlPool) -> Self {
        Self { base: Base::Pool(pool.clone()), refresh: None }
    }

    /// Lets `refresh` complete the options before each connection is opened.
    pub(crate) fn refreshed<F, R, E>(mut self, refresh: F) -> Self
    where
        F: Fn(MySqlConnectOptions) -> R + Send + Sync + 'static,
        R: Future<Output = Result<MySqlConnectOptions, E>> + Send + 'static,
        E: fmt::Display,
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

    fn base(&self) -> MySqlConnectOptions {
        match &self.base {
            Base::Fixed(options) => options.as_ref().clone(),
            Base::Pool(pool) => pool.connect_options().as_ref().clone(),
        }
    }

    async fn options(&self) -> Result<MySqlConnectOptions, StoreError> {
        match &self.refresh {
            Some(refresh) => refresh(self.base()).await,
            None => Ok(self.base()),
        }
    }

    /// The database that the options name.
    pub(crate) fn database(&self) -> Result<String, StoreError> {
        let options = self.base();
        let database = options.get_database().filter(|name| !name.is_empty()).map(str::to_owned);
        database.ok_or_else(|| {
            StoreError::configuration(
                "the URL names no database; write it after the host: `mysql://host/database`",
            )
        })
    }

    /// Where server and database are: no user, no password.
    pub(crate) fn place(&self) -> String {
        let options = self.base();
        let database = options.get_database().unwrap_or_default();
        match options.get_socket() {
            Some(socket) => format!("{} database {database}", socket.display()),
            None => format!("{}:{} database {database}", options.get_host(), options.get_port()),
        }
    }
}

/// Opens connections.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) source: Source,
    pub(crate) timeout: Duration,
    pub(crate) max_age: Duration,
}

impl Connector {
    /// Opens a connection.
    pub(crate) async fn connect(&self) -> Result<Session, StoreError> {
        timeout(self.timeout, self.open()).await.unwrap_or_else(|_| {
            Err(StoreError::unavailable(format!(
                "the server did not accept the connection within {:?}",
                self.timeout
            )))
        })
    }

    /// Opens a connection, however long it takes.
    pub(crate) async fn open(&self) -> Result<Session, StoreError> {
        let options = self.source.options().await?.disable_statement_logging();
        encryption::report(&options);
        let options = options
            .pipes_as_concat(false)
            .no_engine_substitution(false)
            .timezone(None)
            .set_names(false)
            .statement_cache_capacity(MOST_PREPARED);
        let connection = MySqlConnection::connect_with(&options).await;
        Session::new(connection.map_err(|error| failure::of_connect(&error))?).await
    }

    /// Reports whether connections must be encrypted.
    pub(crate) async fn find_encryption(&self, found: &mut Inspection) -> Result<(), StoreError> {
        encryption::find(&self.source.options().await?, found);
        Ok(())
    }

    /// Where server and database are: no user, no password.
    pub(crate) fn place(&self) -> String {
        self.source.place()
    }

    /// This session, if it may be used again and is not too old: a host name may point to another server later.
    pub(crate) async fn kept(&self, session: Session) -> Option<Session> {
        session.kept(self.max_age, self.timeout).await
    }
}
