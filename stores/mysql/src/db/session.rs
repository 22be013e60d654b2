//! One connection to the server, and the statements on it.
//!
//! Statements are text with all their values in them, several in one exchange. Only statements with a large value are
//! prepared, and closed again, so nothing stays in the session.

use std::time::Duration;

use futures_util::TryStreamExt as _;
use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, Connection as _, Either, Executor as _};
use tokio::time::{Instant, timeout};

use super::failure::{self, Failure, Stage};

/// Begins a transaction whose locking reads lock the rows that they find and no gaps, whatever the server's defaults are. The
/// isolation level applies to this transaction only.
pub(crate) const BEGIN: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION; ";
/// Begins a transaction whose statements all read one snapshot, taken by the first that reads a table.
pub(crate) const BEGIN_READING: &str =
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION READ ONLY; ";
/// Commits. Overrides the server's `completion_type`, which could begin another transaction or close the connection.
pub(crate) const COMMIT: &str = "COMMIT AND NO CHAIN NO RELEASE";
const ROLLBACK: &str = "ROLLBACK AND NO CHAIN NO RELEASE";

/// How many statements there are in `BEGIN` and in `BEGIN_READING`.
pub(crate) const BEGINNING: usize = 2;

/// The rows of each statement of an exchange.
pub(crate) type Answers = Vec<Vec<MySqlRow>>;

/// An open connection. It lives in the runtime that opened it.
pub(crate) struct Session {
    connection: MySqlConnection,
    opened: Instant,
    /// Whether the connection may be used again. False while a statement runs: a dropped future leaves it in an undefined state.
    usable: bool,
}

impl Session {
    pub(super) fn new(connection: MySqlConnection) -> Self {
        Self { connection, opened: Instant::now(), usable: true }
    }

    /// Runs statements, separated by `;`, in one exchange. Stops at the first that fails.
    pub(crate) async fn run(&mut self, text: String, stage: Stage) -> Result<Answers, Failure> {
        let usable = std::mem::replace(&mut self.usable, false);
        let answers = read(&mut self.connection, text).await;
        let answers = answers.map_err(|error| failure::of_statement(&error, stage));
        self.usable = usable && !matches!(answers, Err(Failure::Broken(_)));
        answers
    }

    /// Runs one statement whose only parameter is a large value, inside a transaction.
    pub(crate) async fn put(&mut self, text: String, value: &[u8]) -> Result<(), Failure> {
        let usable = std::mem::replace(&mut self.usable, false);
        let statement = sqlx::query(AssertSqlSafe(text)).bind(value).persistent(false);
        let done = self.connection.execute(statement).await;
        let done = done.map(drop).map_err(|error| failure::of_statement(&error, Stage::Open));
        self.usable = usable && !matches!(done, Err(Failure::Broken(_)));
        done
    }

    /// Rolls back a transaction in which a statement failed.
    pub(crate) async fn roll_back(&mut self) {
        if self.usable && self.run(ROLLBACK.to_owned(), Stage::Open).await.is_err() {
            self.usable = false;
        }
    }

    /// Marks the connection for closing: a new one may lead to a server that takes writes.
    pub(crate) const fn leave(&mut self) {
        self.usable = false;
    }

    /// Whether the connection may be used again.
    pub(crate) const fn is_usable(&self) -> bool {
        self.usable
    }

    /// This session if it may be used again and is younger than `age`.
    pub(crate) async fn kept(self, age: Duration, time: Duration) -> Option<Self> {
        if self.usable && self.opened.elapsed() < age {
            return Some(self);
        }
        if self.usable {
            self.close(time).await;
        }
        None
    }

    /// Closes the connection. Ignores errors: the server may be gone.
    pub(crate) async fn close(self, time: Duration) {
        let _ = timeout(time, MySqlConnection::close(self.connection)).await;
    }
}

async fn read(connection: &mut MySqlConnection, text: String) -> sqlx::Result<Answers> {
    let (mut answers, mut rows) = (Vec::new(), Vec::new());
    let mut given = connection.fetch_many(AssertSqlSafe(text));
    while let Some(given) = given.try_next().await? {
        match given {
            Either::Right(row) => rows.push(row),
            Either::Left(_) => answers.push(std::mem::take(&mut rows)),
        }
    }
    Ok(answers)
}
