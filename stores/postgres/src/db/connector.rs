//! How connections are opened and set up.
//!
//! The store sends a session's settings in the startup message. It uses no `SET` in a session that a pooler
//! may share, because the setting could reach another client. If a pooler refuses or drops the settings of
//! the startup message, the store assumes that the pooler shares its sessions between clients. Then each
//! transaction sets its own settings, and no statement has a name, because a name could refer to another
//! client's statement. To detect a pooler that drops the settings, the store sends a mark with them. It then
//! checks on the new connection whether the mark arrived.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use idem_core::StoreError;
use idem_core::protocol::Owner;
use idem_store_kit::network;
use idem_store_kit::sql::failure::Refusal;
use idem_store_kit::sql::{self, Encryption, Host};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, Row as _};

use super::failure;
use super::hosts::Target;
use super::session::Session;
use super::source::Source;

/// Opens connections to the servers of a [`Source`], and describes their addresses.
pub type Connector = sql::Connector<Opener>;

/// Opens connections.
#[derive(Clone)]
pub struct Opener {
    target: Target,
    /// The settings of each session.
    settings: Arc<[(&'static str, String)]>,
    /// The statements that begin each transaction in a session that a pooler shares.
    begin: Arc<str>,
    /// Whether a pooler has refused or dropped the settings. If so, the store assumes that the pooler shares
    /// its sessions.
    shared: Arc<AtomicBool>,
}

/// A setting with a different value in each session. If a session shows the value that the store sent for it,
/// the session has the other settings, too.
const MARK: &str = "idem.session";

/// An SQL expression for the name of a session. No other session of the server had or will have this name.
const NAME: &str =
    "(SELECT pid || ' ' || backend_start FROM pg_stat_activity WHERE pid = pg_catalog.pg_backend_pid())";

/// The settings of each session, or of each transaction behind a pooler. The `enable_*` settings and
/// `plan_cache_mode` make a batch (a statement over `unnest`) find each key by the primary key. Otherwise,
/// the planner may read a whole table that was never analyzed, and keep that plan. `jit` does not choose a
/// plan; it is off so that the server compiles none of these short statements.
fn settings(timeout: Duration, lock_timeout: Duration) -> [(&'static str, String); 8] {
    let off = || "off".to_owned();
    [
        ("statement_timeout", millis(timeout)),
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

/// A connector that opens connections to these servers.
pub fn connector(
    Source { servers, target }: Source,
    timeout: Duration,
    lock_timeout: Duration,
    max_age: Duration,
) -> Connector {
    let settings = settings(timeout, lock_timeout);
    let local = settings.iter().map(|(name, value)| format!("; SET LOCAL {name} = {value}"));
    let begin = format!("BEGIN ISOLATION LEVEL READ COMMITTED{}", local.collect::<String>()).into();
    let opener = Opener { target, settings: Arc::new(settings), begin, shared: Arc::default() };
    Connector::new(opener, servers, timeout, max_age)
}

impl sql::Opener for Opener {
    const PRODUCT: &'static str = "PostgreSQL";
    type Options = PgConnectOptions;
    type Session = Session;

    async fn open(&self, options: PgConnectOptions, host: &Host) -> Result<Session, Refusal> {
        let options = options.disable_statement_logging();
        if !self.is_shared() {
            let mark =
                Owner::random().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            let own = options
                .clone()
                .options(self.settings.iter().cloned())
                .options([("default_transaction_isolation", "read committed"), (MARK, &mark)]);
            match PgConnection::connect_with(&own).await {
                Ok(connection) => return self.checked(connection, host, Some(mark)).await,
                Err(error) if failure::refuses_startup_options(&error) => self.share(),
                Err(error) => return Err(failure::of_connect(&error)),
            }
        }
        let connection = PgConnection::connect_with(&options.extra_float_digits(None)).await;
        let connection = connection.map_err(|error| failure::of_connect(&error))?;
        self.checked(connection, host, None).await
    }

    fn address(options: &PgConnectOptions) -> String {
        match options.get_socket() {
            Some(socket) => socket.display().to_string(),
            None => format!("{}:{}", options.get_host(), options.get_port()),
        }
    }

    fn database(options: &PgConnectOptions) -> &str {
        options.get_database().unwrap_or(options.get_username())
    }

    /// If the mode requires encryption, this returns `Required` even if TLS is not built in, because in that
    /// case the driver refuses to connect.
    fn encryption(options: &PgConnectOptions) -> Encryption {
        let host = options.get_host();
        let is_local =
            options.get_socket().is_some() || host.starts_with('/') || network::is_this_machine(host);
        let mode = options.get_ssl_mode();
        let is_required = matches!(mode, PgSslMode::Require | PgSslMode::VerifyCa | PgSslMode::VerifyFull);
        Encryption::of(
            is_local,
            is_required,
            if cfg!(any(feature = "tls", feature = "native-tls")) {
                "`sslmode` does not insist on TLS: set `sslmode=require` or `verify-full`"
            } else {
                "TLS is not built in: turn on the feature `postgres-tls` (`tls` of idem-postgres) or `postgres-native-tls`, \
                 and set `sslmode`"
            },
        )
    }
}

impl Opener {
    /// A session on this connection, if the server meets the URL's conditions.
    async fn checked(
        &self,
        mut connection: PgConnection,
        host: &Host,
        mark: Option<String>,
    ) -> Result<Session, Refusal> {
        let (is_right, otherwise) = self.target.check();
        let query = format!("SELECT pg_catalog.current_setting('{MARK}', true), {is_right}, {NAME}");
        // The statement has no parameters, so it takes one exchange and leaves nothing in a session that a
        // pooler shares.
        let row = connection.fetch_one(AssertSqlSafe(query)).await;
        let found = row.and_then(|row| {
            Ok((row.try_get::<Option<String>, _>(0)?, row.try_get::<bool, _>(1)?, row.try_get(2)?))
        });
        let (found, is_right, name): (_, _, Option<String>) =
            found.map_err(|error| failure::of_connect(&error))?;
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

    /// Whether a pooler shares the sessions. If so, a transaction must leave nothing behind in its session.
    pub fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    /// From now on, each transaction of a new session sets its own settings.
    pub(super) fn share(&self) {
        if !self.shared.swap(true, Ordering::Relaxed) {
            tracing::info!(
                target: "idem",
                event = "pooler_found",
                "the server does not take a session's settings, as behind a pooler: every statement brings its own, \
                 at the price of three more exchanges"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encryption(url: &str) -> Encryption {
        <Opener as sql::Opener>::encryption(&url.parse().unwrap())
    }

    #[test]
    fn a_connection_to_another_machine_that_need_not_be_encrypted_is_told_once() {
        assert_eq!(encryption("postgres://a@db.example/b?sslmode=require"), Encryption::Required);
        let (log, writer) = std::io::pipe().unwrap();
        let subscriber = tracing_subscriber::fmt().with_writer(Arc::new(writer)).finish();
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..2 {
                encryption("postgres://a:secret@db.example/b").report("PostgreSQL");
            }
        });
        let logged = std::io::read_to_string(log).unwrap();
        assert!(logged.matches("not_encrypted").count() == 1 && !logged.contains("secret"), "{logged}");
    }
}
