//! A connection that is opened when it is needed, and opened again after a failure.

use sqlx::postgres::PgRow;
use tokio::sync::Mutex;

use idem_core::StoreError;
use idem_postgres::db::connector::Connector;
use idem_postgres::db::session::{Session, Statement};
use idem_store_kit::group_commit::Failure;
use idem_store_kit::retry::retried;
use idem_store_kit::sql::Session as _;

/// One connection, for use in one tokio runtime.
pub(super) struct Link {
    connector: Connector,
    /// `None` if no connection is open, and while a statement runs. So if the statement's future is dropped,
    /// its connection is dropped too.
    session: Mutex<Option<Session>>,
}

impl Link {
    pub(super) fn new(connector: &Connector) -> Self {
        Self { connector: connector.clone(), session: Mutex::new(None) }
    }

    /// Runs a statement, and repeats it after each transient error, within the operation timeout.
    pub(super) async fn ask(&self, asked: impl Fn() -> Statement) -> Result<Vec<PgRow>, StoreError> {
        retried(self.connector.timeout(), || self.attempt(asked())).await
    }

    /// As [`ask`](Self::ask), but does not repeat a statement whose answer was lost, because the statement
    /// may have been applied.
    pub(super) async fn ask_once(&self, asked: impl Fn() -> Statement) -> Result<Vec<PgRow>, StoreError> {
        let answer = retried(self.connector.timeout(), || async {
            match self.attempt(asked()).await {
                Err(error) if error.is_outcome_unknown() => Ok(Err(error)),
                answer => answer.map(Ok),
            }
        });
        answer.await?
    }

    async fn attempt(&self, statement: Statement) -> Result<Vec<PgRow>, StoreError> {
        let mut slot = self.session.lock().await;
        let mut session = match slot.take() {
            Some(session) => session,
            None => self.connector.connect().await?,
        };
        let answer = session.fetch_all(statement).await;
        *slot = self.connector.kept(session).await;
        answer.map_err(Failure::error)
    }

    pub(super) async fn close(self) {
        if let Some(session) = self.session.into_inner() {
            session.close(self.connector.timeout()).await;
        }
    }
}
