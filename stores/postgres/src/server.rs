//! The facts about this store that the group commit needs: the kinds of its operations, and how a batch runs.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use idem_core::StoreError;
use idem_core::protocol::Request;
use sqlx::Row as _;

use idem_store_kit::group_commit::{
    Answer, Answers, Class, Failure, Keys, Kind, Op, Operation, Server, Ticket,
};
use idem_store_kit::sql::{Session as _, name};

use crate::compare_and_swap::{self, Batch};
use crate::db::connector::Connector;
use crate::db::session::{Session, statement};
use crate::statements::Statements;
use crate::{claims, held_claims};

/// The settings of a store.
pub(crate) struct Setting {
    pub(crate) connector: Connector,
    pub(crate) statements: Arc<Statements>,
    /// The limit of sessions in each runtime.
    pub(crate) connections: usize,
}

/// The largest batch: `MOST` operations, and `MOST_BYTES` bytes of results.
const MOST: usize = 256;
const MOST_BYTES: usize = 1 << 20;
/// The largest batch of renewals. Renewals are small, and if many bodies began together, thousands of
/// renewals may come together.
const MOST_RENEWALS: usize = 1_024;

const fn changes(most: usize, keys: Keys, goes_first: bool) -> Kind {
    Kind { class: Class::Changes, most, keys, goes_first }
}

/// The indexes of the kinds in `KINDS`. A batch may have several claims of one key, because one row answers
/// all of them.
const CLAIMS: usize = 0;
const RENEWALS: usize = 1;
const RECORDINGS: usize = 2;
const COMPLETIONS: usize = 3;
/// Reads the record, decides, and writes.
const COMPARE_AND_SWAP: usize = 4;
const READS: usize = 5;
const DELETIONS: usize = 6;

/// Returns the names in `$1` whose session is running a statement or has an open transaction.
const AT_WORK: &str = "SELECT s.name FROM (SELECT pid || ' ' || backend_start AS name, state FROM pg_stat_activity) s \
     WHERE s.name = ANY($1) AND s.state IS DISTINCT FROM 'idle'";

impl Server for Setting {
    type Session = Session;

    const KINDS: &'static [Kind] = &[
        changes(MOST, Keys::Any, false),
        Kind { class: Class::Renewals, most: MOST_RENEWALS, keys: Keys::OneEach, goes_first: false },
        changes(MOST, Keys::OneEach, false),
        changes(MOST, Keys::OneEach, true),
        changes(MOST, Keys::OneEach, false),
        Kind { class: Class::Reads, most: MOST, keys: Keys::Any, goes_first: false },
        changes(1, Keys::Any, false),
    ];

    fn kind(operation: &Operation) -> usize {
        match &operation.op {
            Op::Apply(Request::Claim(_)) => CLAIMS,
            Op::Apply(Request::Renew(_)) => RENEWALS,
            Op::Apply(Request::RecordStep(_)) => RECORDINGS,
            Op::Apply(Request::Complete(_)) => COMPLETIONS,
            Op::Apply(_) | Op::Look(_) => COMPARE_AND_SWAP,
            Op::Get => READS,
            Op::Forget => DELETIONS,
        }
    }

    fn weight(operation: &Operation) -> usize {
        operation.result_bytes()
    }

    fn most_bytes(&self) -> usize {
        MOST_BYTES
    }

    fn connections(&self) -> usize {
        self.connections
    }

    fn timeout(&self) -> Duration {
        self.connector.timeout()
    }

    async fn open(&self) -> Result<Session, StoreError> {
        self.connector.connect().await
    }

    async fn kept(&self, session: Session) -> Option<Session> {
        self.connector.kept(session).await
    }

    fn close(&self, session: Session) -> impl Future<Output = ()> + Send + 'static {
        session.close(self.connector.timeout())
    }

    fn name(&self, session: &Session) -> Option<String> {
        session.name().cloned()
    }

    async fn at_work(&self, session: &mut Session, names: &[String]) -> Result<Vec<String>, StoreError> {
        let found =
            session.fetch_all(statement(&AT_WORK.into()).bind(names)).await.map_err(Failure::error)?;
        Ok(found.iter().filter_map(|row| row.try_get(0).ok()).collect())
    }

    async fn attempt(
        &self,
        session: &mut Session,
        kind: usize,
        tickets: &[Ticket],
        _is_own: bool,
    ) -> Result<Answers, Failure> {
        let statements = &self.statements;
        let done = match kind {
            CLAIMS => claims::claim(session, statements, tickets).await,
            RENEWALS => held_claims::renew(session, statements, tickets).await,
            RECORDINGS => held_claims::record_step(session, statements, tickets).await,
            COMPLETIONS => held_claims::complete(session, statements, tickets).await,
            COMPARE_AND_SWAP => Batch::new(statements, tickets).settle(session).await,
            READS => compare_and_swap::get(session, statements, tickets).await,
            _ => forget(session, statements, tickets).await,
        };
        if done.is_err() && tickets.len() > 1 {
            // An earlier statement of the batch may have applied some of the operations.
            for ticket in tickets {
                ticket.may_be_done.store(true, Ordering::Relaxed);
            }
        }
        match done {
            // `Broken` ends the use of this session. The next session goes to another server, if the URL has
            // several.
            Err(Failure::ReadOnly(error)) => Err(Failure::Broken(error)),
            done => done,
        }
    }
}

/// Deletes the record of the batch's only operation.
async fn forget(
    session: &mut Session,
    statements: &Statements,
    tickets: &[Ticket],
) -> Result<Answers, Failure> {
    let [ticket] = tickets else { return Ok(Vec::new()) };
    let (scope, key) = name(&ticket.operation.key);
    let rows = session.fetch_all(statement(&statements.forget).bind(scope).bind(key)).await?;
    let live = rows.first().is_some_and(|row| row.try_get::<bool, _>(0).unwrap_or(true));
    Ok(vec![Some(Ok(Answer::Forgotten(live)))])
}

#[cfg(test)]
mod tests {
    use idem_test_servers::Postgres;
    use sqlx::Executor as _;

    use super::*;
    use crate::PostgresStore;

    #[tokio::test]
    async fn a_session_whose_transaction_has_not_ended_is_at_work_and_an_idle_one_is_not() {
        let server = Postgres::shared();
        let store = PostgresStore::connect(&server.url()).await.unwrap();
        let setting = store.0.server();
        let (mut looking, idle) = (setting.open().await.unwrap(), setting.open().await.unwrap());
        let mut working = setting.open().await.unwrap();
        working.connection().execute("BEGIN").await.unwrap();
        let [idle, working] = [&idle, &working].map(|session| setting.name(session).unwrap());
        let names = [idle, working.clone(), "1 ended".to_owned()];
        assert_eq!(setting.at_work(&mut looking, &names).await.unwrap(), [working]);
    }
}
