//! Connections of the store's own, and how they are set up.

use std::str::FromStr as _;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _};
use tokio::time::timeout;

use super::failure;
use crate::error::StoreError;

/// How a connection is opened.
#[derive(Clone, Debug)]
pub(crate) struct Opening {
    options: PgConnectOptions,
    setup: String,
    time: Duration,
}

impl Opening {
    pub(crate) fn new(options: PgConnectOptions, time: Duration, lock_timeout: Duration) -> Self {
        // Statements over arrays look up each key by the primary key. Left to itself on a table that was
        // never analyzed, the planner reads the whole table instead, and keeps to that plan.
        let setup = format!(
            "SET statement_timeout = {}; SET lock_timeout = {}; SET enable_seqscan = off; \
             SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_bitmapscan = off; \
             SET plan_cache_mode = force_generic_plan; SET jit = off; \
             SET default_transaction_isolation = 'read committed'",
            time.as_millis().max(1),
            lock_timeout.as_millis().max(1)
        );
        Self { options: options.disable_statement_logging(), setup, time }
    }

    /// Opens one.
    pub(crate) async fn open(&self) -> Result<PgConnection, StoreError> {
        let opening = async {
            let mut connection = PgConnection::connect_with(&self.options).await?;
            connection.execute(AssertSqlSafe(self.setup.as_str())).await?;
            Ok(connection)
        };
        match timeout(self.time, opening).await {
            Ok(opened) => opened.map_err(|error| failure::of_connect(&error)),
            Err(_) => Err(StoreError::unavailable(format!(
                "the server did not take the connection within {:?}",
                self.time
            ))),
        }
    }

    pub(crate) const fn options(&self) -> &PgConnectOptions {
        &self.options
    }

    /// How long one statement may take.
    pub(crate) const fn time(&self) -> Duration {
        self.time
    }
}

/// The options of a URL.
pub(crate) fn options_of_url(url: &str) -> Result<PgConnectOptions, StoreError> {
    // The driver takes any scheme. What is there instead may be a password, so it is not repeated.
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        PgConnectOptions::from_str(url).map_err(|error| failure::of_connect(&error))
    } else {
        Err(StoreError::configuration("the URL of the database must begin with `postgres://`"))
    }
}

/// Where a server and database are: no user, no password.
pub(crate) fn place(options: &PgConnectOptions) -> String {
    let database = options.get_database().unwrap_or(options.get_username());
    match options.get_socket() {
        Some(socket) => format!("{} database {database}", socket.display()),
        None => format!("{}:{} database {database}", options.get_host(), options.get_port()),
    }
}
