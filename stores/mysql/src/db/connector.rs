//! How connections are opened.
//!
//! The store's operations and the driver change no session setting. Statements contain all settings that they
//! need, so a pooler may give the session to another client after each transaction. Only a migration on MySQL
//! changes a setting; see `ALTERS` in `session`. Prepared statements belong to the connection, even through a
//! proxy.

use std::str::FromStr as _;

use idem_core::StoreError;
use idem_store_kit::network;
use idem_store_kit::sql::failure::Refusal;
use idem_store_kit::sql::{self, Encryption, Host};
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlSslMode};
use sqlx::{ConnectOptions as _, Connection as _, MySqlPool};

use super::failure;
use super::session::Session;

/// How many statements stay prepared in a session at most: reads, claims and completions, each for several
/// numbers of rows.
const MOST_PREPARED: usize = 32;

pub(crate) type Connector = sql::Connector<Opener>;
pub(crate) type Source = sql::Source<MySqlConnectOptions>;

pub(crate) fn of_url(url: &str) -> Result<Source, StoreError> {
    // The driver accepts any scheme. The error does not repeat the text, which may be a password.
    if !url.starts_with("mysql://") && !url.starts_with("mariadb://") {
        return Err(StoreError::configuration("the URL of the database must begin with `mysql://`"));
    }
    let options = MySqlConnectOptions::from_str(url).map_err(|error| failure::of_connect(&error).error)?;
    Ok(Source::fixed(vec![options]))
}

/// The server of a pool. Each connection is opened with the options that the pool has at that time.
pub(crate) fn of_pool(pool: &MySqlPool) -> Source {
    let pool = pool.clone();
    Source::current(move || pool.connect_options().as_ref().clone())
}

/// The name of the database in the options.
pub(crate) fn database(source: &Source) -> Result<String, StoreError> {
    let servers = source.bases();
    let database = servers.first().map(<Opener as sql::Opener>::database).filter(|name| !name.is_empty());
    database.map(str::to_owned).ok_or_else(|| {
        StoreError::configuration(
            "the URL names no database; write it after the host: `mysql://host/database`",
        )
    })
}

#[derive(Clone)]
pub(crate) struct Opener;

impl sql::Opener for Opener {
    const PRODUCT: &'static str = "MySQL";
    type Options = MySqlConnectOptions;
    type Session = Session;

    async fn open(&self, options: MySqlConnectOptions, host: &Host) -> Result<Session, Refusal> {
        let options = options
            .disable_statement_logging()
            .pipes_as_concat(false)
            .no_engine_substitution(false)
            .timezone(None)
            .set_names(false)
            .statement_cache_capacity(MOST_PREPARED);
        let connection = MySqlConnection::connect_with(&options).await;
        let connection = connection.map_err(|error| failure::of_connect(&error))?;
        Ok(Session::new(connection, host).await?)
    }

    fn address(options: &MySqlConnectOptions) -> String {
        match options.get_socket() {
            Some(socket) => socket.display().to_string(),
            None => format!("{}:{}", options.get_host(), options.get_port()),
        }
    }

    fn database(options: &MySqlConnectOptions) -> &str {
        options.get_database().unwrap_or_default()
    }

    /// If the server is on another machine and the mode requires encryption, returns `Required`, even without
    /// TLS in the build: the driver then refuses to connect.
    fn encryption(options: &MySqlConnectOptions) -> Encryption {
        let is_local = options.get_socket().is_some() || network::is_this_machine(options.get_host());
        let mode = options.get_ssl_mode();
        let is_required =
            matches!(mode, MySqlSslMode::Required | MySqlSslMode::VerifyCa | MySqlSslMode::VerifyIdentity);
        Encryption::of(
            is_local,
            is_required,
            if cfg!(any(feature = "tls", feature = "native-tls")) {
                "`ssl-mode` does not insist on TLS: set `ssl-mode=REQUIRED` or `VERIFY_IDENTITY`"
            } else {
                "TLS is not built in: turn on the feature `mysql-tls` (`tls` of idem-mysql) or `mysql-native-tls`, and set \
                 `ssl-mode`"
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(url: &str) -> MySqlConnectOptions {
        MySqlConnectOptions::from_str(url).unwrap()
    }

    #[test]
    fn a_connection_to_another_machine_that_need_not_be_encrypted_is_open() {
        for (url, is_open) in [
            ("mysql://a@localhost/b", false),
            ("mysql://a@[::1]/b", false),
            ("mysql://a@localhost/b?socket=/run/mysqld.sock", false),
            ("mysql://a@db.example/b?ssl-mode=REQUIRED", false),
            ("mysql://a@db.example/b", true),
        ] {
            let encryption = <Opener as sql::Opener>::encryption(&options(url));
            assert_eq!(matches!(encryption, Encryption::Open(_)), is_open, "{url}");
        }
    }

    #[tokio::test]
    async fn what_a_pool_has_learned_is_in_the_options_of_the_next_connection() {
        let pool = MySqlPool::connect_lazy_with(options("mysql://first/b"));
        let source = of_pool(&pool);
        pool.set_connect_options(options("mysql://second/b"));
        assert_eq!(source.bases()[0].get_host(), "second");
    }
}
