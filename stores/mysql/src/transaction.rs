//! Recording in a transaction of the caller's, on its connection.
//!
//! The key is taken by the lock of its row: of the row that there is, or of one that is inserted and deleted at once, whose
//! lock stays to the end of the transaction. A duplicate finds it held, and nothing is left of it. The record is written
//! when the body is done.

use std::sync::atomic::Ordering;

use sqlx::mysql::{MySqlConnection, MySqlTransactionManager};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use sqlx_core::transaction::TransactionManager as _;
use tokio::time::Instant;

use super::MySqlStore;
use super::change::RETRY_AFTER;
use super::operation::{Answer, Op, Seen};
use super::statements::{Statements, large_result};
use crate::db::failure::{self, Failure, Stage};
use idem_core::protocol::{self, Claim, ClaimAnswer, Complete, CompleteAnswer};
use idem_core::support::own_runtime::apart;
use idem_core::support::retry::retried;
use idem_core::transaction::{RecordsIn, Taken, Taking, TransactionStore};
use idem_core::{RecordKey, StoreError};

/// How often a key is looked at again because another was faster.
const ROUNDS: usize = 8;

/// Ends the session, and with it the transaction: the server has no other way to make a commit impossible.
const SPOIL: &str = "KILL CONNECTION_ID()";

/// Fails outside a transaction, where a savepoint is gone at once.
const IS_OPEN: &str = "SAVEPOINT idem_is_open; RELEASE SAVEPOINT idem_is_open";

fn failed(error: &sqlx::Error) -> StoreError {
    failure::of_statement(error, Stage::Open).error()
}

impl MySqlStore {
    fn statements(&self) -> &Statements {
        &self.0.queues.setting().statements
    }

    /// Has all processes answer claims of a locked record politely from now on.
    async fn announce(&self) -> Result<(), StoreError> {
        if self.0.announced.load(Ordering::Relaxed) {
            return Ok(());
        }
        let queues = self.0.queues.clone();
        apart(async move {
            let setting = queues.setting();
            retried(setting.connector.timeout, || async {
                let mut session = setting.connector.connect().await?;
                let announced = session.run(setting.statements.announce(), Stage::Committing).await;
                session.close(setting.connector.timeout).await;
                announced.map(drop).map_err(Failure::error)
            })
            .await
        })
        .await?;
        self.0.queues.setting().has_transactions.store(true, Ordering::Relaxed);
        self.0.announced.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// What a claim would be granted, and nothing is written; or what it is answered.
    async fn look(
        &self,
        key: &RecordKey,
        request: &Claim,
    ) -> Result<Result<Box<Seen>, ClaimAnswer>, StoreError> {
        self.ask(key, Op::Look(request.clone()), |answer| match answer {
            Answer::Seen(seen) => Some(Ok(seen)),
            Answer::Applied(protocol::Answer::Claim(answer)) => Some(Err(answer)),
            _ => None,
        })
        .await
    }

    /// Locks the row that was seen, or the place of one. Says whether it is this transaction's.
    async fn lock(
        &self,
        connection: &mut MySqlConnection,
        key: &RecordKey,
        seen: &Seen,
    ) -> Result<bool, StoreError> {
        let statements = self.statements();
        let text = match &seen.old {
            Some(old) => statements.lock_seen(key, old),
            None => statements.lock_place(key, &seen.new),
        };
        match connection.fetch_all(AssertSqlSafe(text)).await {
            Ok(rows) => Ok(seen.old.is_none() || !rows.is_empty()),
            Err(error) if failure::is_duplicate(&error) => Ok(false),
            Err(error) => {
                if failure::may_end_transaction(&error) {
                    // What the caller wrote before is gone: it must not commit what it writes from now on.
                    Self::spoil(connection).await;
                }
                Err(failed(&error))
            }
        }
    }
}

impl TransactionStore for MySqlStore {
    type Itself = Self;

    fn itself(self) -> Self {
        self
    }
}

impl RecordsIn<MySqlConnection> for MySqlStore {
    type Mark = ();

    fn is_open(connection: &mut MySqlConnection) -> bool {
        connection.is_in_transaction()
    }

    async fn take(
        &self,
        connection: &mut MySqlConnection,
        key: &RecordKey,
        request: &Claim,
    ) -> Result<Taking, StoreError> {
        self.announce().await?;
        for _ in 0..ROUNDS {
            let seen = match self.look(key, request).await? {
                Ok(seen) => seen,
                Err(answer) => return Ok(Taking::Refused(answer)),
            };
            let since = Instant::now();
            if self.lock(connection, key, &seen).await? {
                let Seen { old, new, grant, now } = *seen;
                // However long the transaction takes: nobody can see the claim expire.
                let new = new.with_expires_at(None);
                // The mark tells the transaction from another of the session, not when it began.
                return Ok(Taking::Taken(Box::new(Taken { grant, old, new, begun: now, at: now, since })));
            }
        }
        Ok(Taking::Refused(ClaimAnswer::Busy { retry_after: RETRY_AFTER }))
    }

    async fn mark(connection: &mut MySqlConnection) -> Result<(), StoreError> {
        MySqlTransactionManager::begin(connection, None).await.map_err(|error| failed(&error))
    }

    async fn undo(connection: &mut MySqlConnection, (): &mut ()) -> Result<(), StoreError> {
        let undone = MySqlTransactionManager::rollback(connection).await.map_err(|error| failed(&error));
        if undone.is_err() {
            // The mark is gone with the transaction it was in; the driver must not go on counting it.
            MySqlTransactionManager::start_rollback(connection);
        }
        undone
    }

    fn undo_first(connection: &mut MySqlConnection, (): &mut ()) {
        MySqlTransactionManager::start_rollback(connection);
    }

    async fn keep(connection: &mut MySqlConnection, (): &mut ()) -> Result<(), StoreError> {
        MySqlTransactionManager::commit(connection).await.map_err(|error| failed(&error))
    }

    async fn record(
        &self,
        connection: &mut MySqlConnection,
        key: &RecordKey,
        taken: &Taken,
        request: &Complete,
    ) -> Result<CompleteAnswer, StoreError> {
        self.check_size(&request.result)?;
        let now = taken.at.after(taken.since.elapsed());
        let Some(record) = protocol::complete(Some(&taken.new), request, now).write else {
            return Ok(CompleteAnswer::Lost);
        };
        let statements = self.statements();
        // It fails where a statement of the body has ended the transaction: the record would be committed at once.
        connection.execute(IS_OPEN).await.map_err(|error| failed(&error))?;
        let with_result = large_result(&record).is_none();
        let text = match &taken.old {
            None => statements.insert([(key, &record)].into_iter(), |_| with_result),
            Some(old) => statements.replace_seen(key, old, &record, with_result),
        };
        let written = connection.execute(AssertSqlSafe(text)).await;
        let written = match written {
            Err(error) if failure::is_duplicate(&error) => return Ok(CompleteAnswer::Lost),
            written => written.map_err(|error| failed(&error))?,
        };
        if written.rows_affected() == 0 {
            return Ok(CompleteAnswer::Lost);
        }
        if let Some(value) = large_result(&record) {
            let put = sqlx::query(AssertSqlSafe(statements.put_result(key))).bind(value.as_ref());
            connection.execute(put.persistent(false)).await.map_err(|error| failed(&error))?;
        }
        if taken.old.as_ref().is_some_and(|old| !old.steps.is_empty()) {
            let (scope, name) = (key.scope().as_str().as_bytes(), key.key().as_str().as_bytes());
            let text = statements.delete_steps(scope, name);
            connection.execute(AssertSqlSafe(text)).await.map_err(|error| failed(&error))?;
        }
        Ok(CompleteAnswer::Done)
    }

    async fn spoil(connection: &mut MySqlConnection) {
        // It ends the connection, so it gives an error. Before that a rollback that the driver put off may give its own.
        for _ in 0..3 {
            let _ = connection.execute(SPOIL).await;
        }
    }
}
