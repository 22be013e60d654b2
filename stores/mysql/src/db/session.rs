//! One connection to the server, and the statements on it.
//!
//! Usually, a statement is text that contains all values, and one exchange has several statements. On
//! MariaDB, an operation that needs only one statement uses a prepared statement.

use std::time::Duration;

use futures_util::TryStreamExt as _;
use futures_util::stream::BoxStream;
use idem_store_kit::sql::{self, Host, Use};
use sqlx::mysql::{MySql, MySqlConnection, MySqlQueryResult, MySqlRow};
use sqlx::{AssertSqlSafe, Connection as _, Either, Execute, Executor as _, Row as _};
use tokio::time::timeout;

use super::failure::{self, Failure, Stage};
use crate::text::Prepared;
use idem_core::StoreError;

/// Begins a transaction in which a locking read locks the rows that it finds, but no gaps between rows. This
/// does not depend on the server's defaults. The isolation level applies to this transaction only.
pub(crate) const BEGIN: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION; ";
/// Begins a transaction whose statements all read one snapshot. The first statement that reads a table takes
/// the snapshot.
pub(crate) const BEGIN_READING: &str =
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION READ ONLY; ";
/// Precedes a statement that is a transaction of its own, whatever the server's default isolation level is.
/// Fails if a transaction is open.
pub(crate) const ONE: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; ";
/// Precedes a statement that must not wait for locks. If another transaction has locked the table or a row
/// that the statement needs, the statement fails at once.
pub(crate) const AT_ONCE: &str = "SET STATEMENT innodb_lock_wait_timeout = 0, lock_wait_timeout = 0 FOR ";
/// Precedes a statement that changes a table: the first text on MariaDB, the second on MySQL. The text limits
/// how long the statement waits for the table's lock, in seconds. The text for MySQL changes a setting of the
/// session, so the session is closed afterwards.
const ALTERS: (&str, &str) =
    ("SET STATEMENT lock_wait_timeout = 1 FOR ", "SET SESSION lock_wait_timeout = 1; ");
/// The end of a `WHERE` clause, with two conditions. First, the statement is a transaction of its own; in a
/// session without autocommit, this is false. Second, a replica gets the changed rows and not the statement's
/// text, because these conditions could be false there. The store checks both conditions when it opens a
/// session. The statement checks them again, because a proxy may send the statement to another session.
pub(crate) const IS_ONE: &str = " AND @@in_transaction = 0 AND @@binlog_format <> 'STATEMENT'";
/// Commits. Overrides the server's `completion_type`, which could begin another transaction or close the
/// connection.
pub(crate) const COMMIT: &str = "COMMIT AND NO CHAIN NO RELEASE";
/// Reads the server's version, and the defaults of a session.
const ABOUT: &str = "SELECT @@autocommit, VERSION(), @@max_allowed_packet, @@innodb_rollback_on_timeout; \
     SHOW VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation', 'binlog_format')";
/// With one of these settings, a session uses no prepared statements. At the isolation level
/// `READ-UNCOMMITTED`, a statement reads uncommitted data. With the format `STATEMENT` of the binary log, the
/// store's writes at `READ COMMITTED` fail.
const UNFIT: [&str; 2] = ["READ-UNCOMMITTED", "STATEMENT"];
const ROLLBACK: &str = "ROLLBACK AND NO CHAIN NO RELEASE";

/// The number of statements in `BEGIN`, and also in `BEGIN_READING`.
pub(crate) const BEGINNING: usize = 2;

/// The server's answers to the statements of an exchange.
#[derive(Default)]
pub(crate) struct Answers(Vec<(Vec<MySqlRow>, MySqlQueryResult)>);

impl Answers {
    /// The rows that the statement at this index returned.
    pub(crate) fn rows(&self, statement: usize) -> &[MySqlRow] {
        self.0.get(statement).map_or(&[], |(rows, _)| rows)
    }

    /// How many rows the statement at this index wrote, including rows that already had the new values.
    pub(crate) fn written(&self, statement: usize) -> u64 {
        self.0.get(statement).map_or(0, |(_, done)| done.rows_affected())
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    pub(crate) version: String,
    pub(crate) is_mariadb: bool,
    /// The largest message that the server accepts, in bytes.
    pub(crate) max_packet: usize,
    /// Whether a statement can fail instead of waiting for locks, without a rollback of the whole
    /// transaction.
    pub(crate) fails_at_once: bool,
}

/// An open connection. It belongs to the runtime that opened it.
pub(crate) struct Session {
    connection: MySqlConnection,
    usage: Use,
    server: Server,
    prepares: bool,
}

impl Session {
    pub(super) async fn new(connection: MySqlConnection, host: &Host) -> Result<Self, StoreError> {
        let (usage, server) = (Use::new(host.clone()), Server::default());
        let mut session = Self { connection, usage, server, prepares: false };
        let answers = session.run(format!("{ABOUT}; {COMMIT}"), Stage::Open).await.map_err(Failure::error)?;
        let unreadable = || StoreError::configuration("the server did not return its version");
        let row = answers.rows(0).first().ok_or_else(unreadable)?;
        let number = |index| row.try_get_unchecked::<u64, _>(index).map_err(|_| unreadable());
        let version: String = row.try_get_unchecked(1).map_err(|_| unreadable())?;
        let is_mariadb = version.to_ascii_lowercase().contains("mariadb");
        let max_packet = usize::try_from(number(2)?).unwrap_or(usize::MAX);
        let setting = |row: &MySqlRow| row.try_get_unchecked::<String, _>(1).unwrap_or_default();
        let is_fit = answers.rows(1).iter().all(|row| !UNFIT.contains(&&*setting(row)));
        session.prepares = is_mariadb && is_fit && number(0)? == 1;
        let fails_at_once = is_mariadb && number(3)? == 0;
        session.server = Server { version, is_mariadb, max_packet, fails_at_once };
        Ok(session)
    }

    pub(crate) const fn server(&self) -> &Server {
        &self.server
    }

    /// The text that makes the following statement fail instead of waiting for a lock. Empty on MySQL, which
    /// has no such option.
    pub(crate) const fn at_once(&self) -> &'static str {
        if self.server.is_mariadb { AT_ONCE } else { "" }
    }

    /// Runs statements, separated by `;`, in one exchange. Stops at the first statement that fails.
    pub(crate) async fn run(&mut self, text: String, stage: Stage) -> Result<Answers, Failure> {
        self.exchange(AssertSqlSafe(text), stage).await
    }

    async fn exchange<'q>(
        &mut self,
        query: impl Execute<'q, MySql> + 'q,
        stage: Stage,
    ) -> Result<Answers, Failure> {
        let was_usable = self.usage.begin();
        let answers = read(self.connection.fetch_many(query)).await;
        let answers = answers.map_err(|error| failure::of_statement(&error, stage));
        self.usage.end(was_usable, !matches!(answers, Err(Failure::Broken(_))));
        answers
    }

    /// Runs a statement that changes a table. If a column or index already exists or is already gone, this is
    /// not an error: another process may have run the statement before. The statement waits only a moment for
    /// transactions that use the table, because all statements of all processes queue behind it.
    pub(crate) async fn alter(&mut self, text: &str) -> Result<(), Failure> {
        let set = if self.server.is_mariadb { ALTERS.0 } else { ALTERS.1 };
        match self.connection.execute(AssertSqlSafe(format!("{set}{text}"))).await {
            Err(error) if !failure::is_altered(&error) => Err(failure::of_statement(&error, Stage::Open)),
            _ => Ok(()),
        }
    }

    /// Whether claims, completions and reads are prepared statements. After the server has refused a prepared
    /// statement, the session uses no more of them. Perhaps the server prepares no statements at all, or a
    /// proxy has sent the statement to another server.
    pub(crate) const fn prepares(&self) -> bool {
        self.prepares
    }

    /// Runs one statement that stays prepared.
    pub(crate) async fn run_prepared(
        &mut self,
        Prepared { text, values }: Prepared,
        stage: Stage,
    ) -> Result<Answers, Failure> {
        let statement = sqlx::query_with(AssertSqlSafe(text), values).persistent(true);
        let answers = self.exchange(statement, stage).await;
        self.prepares &= !matches!(answers, Err(Failure::Refused(_)));
        answers
    }

    /// Rolls back a transaction in which a statement failed.
    pub(crate) async fn roll_back(&mut self) {
        if self.usage.is_usable() && self.run(ROLLBACK.to_owned(), Stage::Open).await.is_err() {
            self.usage.leave();
        }
    }

    /// Marks the connection for closing, for example because a new connection may lead to a server that takes
    /// writes.
    pub(crate) const fn leave(&mut self) {
        self.usage.leave();
    }
}

impl sql::Session for Session {
    fn usage(&self) -> &Use {
        &self.usage
    }

    async fn close(self, time: Duration) {
        let _ = timeout(time, MySqlConnection::close(self.connection)).await;
    }
}

async fn read(
    mut results: BoxStream<'_, sqlx::Result<Either<MySqlQueryResult, MySqlRow>>>,
) -> sqlx::Result<Answers> {
    let (mut answers, mut rows) = (Answers::default(), Vec::new());
    while let Some(result) = results.try_next().await? {
        match result {
            Either::Right(row) => rows.push(row),
            Either::Left(done) => answers.0.push((std::mem::take(&mut rows), done)),
        }
    }
    Ok(answers)
}
