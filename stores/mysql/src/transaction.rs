//! Claims keys and writes records in a transaction of the caller, on the caller's connection.
//!
//! The transaction claims the key by a row lock. If the key has a row, this is the lock of that row.
//! Otherwise the transaction inserts a row and deletes it again, and keeps the lock of that row. The lock
//! lasts until the transaction ends, and a duplicate finds it held. A rollback leaves nothing behind. The
//! record is written when the body has ended.

use sqlx::mysql::{MySqlConnection, MySqlTransactionManager};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, MySqlPool, MySqlTransaction};
use sqlx_core::transaction::TransactionManager as _;
use tokio::time::Instant;

use super::MySqlStore;
use super::change;
use super::rows::{column, now};
use super::setting::Setting;
use crate::db::failure::{self, Stage};
use idem_core::protocol::{self, Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Record};
use idem_core::transaction::{RecordsIn, Taken, Taking, TransactionPool, TransactionStore};
use idem_core::{RecordKey, StoreError};
use idem_store_kit::columns::Unreadable;
use idem_store_kit::group_commit::{Answer, Op, Seen};
use idem_store_kit::sql;

/// Upper limit of the attempts to claim. An attempt fails if another transaction changes the record first.
const ROUNDS: usize = 8;

/// Ends the session and so the transaction, because the server has no other way to make a commit impossible.
const SPOIL: &str = "KILL CONNECTION_ID()";

/// Reads whether the server rolls back the whole transaction if a statement does not get a lock. The
/// statement runs on the caller's connection, because the caller and the store may use different servers.
const ENDS_TRANSACTIONS: &str = "SELECT @@innodb_rollback_on_timeout";

/// Fails outside a transaction, because there a savepoint ends with its own statement.
const IS_OPEN: &str = "SAVEPOINT idem_is_open; RELEASE SAVEPOINT idem_is_open";

fn failed(error: &sqlx::Error) -> StoreError {
    failure::of_statement(error, Stage::Open).error()
}

/// Runs statements, and returns how many rows they wrote.
async fn execute(connection: &mut MySqlConnection, text: String) -> Result<u64, StoreError> {
    let done = connection.execute(AssertSqlSafe(text)).await;
    done.map(|done| done.rows_affected()).map_err(|error| failed(&error))
}

impl MySqlStore {
    fn setting(&self) -> &Setting {
        self.0.server()
    }

    /// Tries to take a key for which the store answered `busy`. The reason may be this transaction itself: it
    /// may have recorded a result of the key, or have taken the key for a body that failed.
    async fn take_again(
        &self,
        connection: &mut MySqlConnection,
        key: &RecordKey,
        request: &Claim,
        busy: ClaimAnswer,
    ) -> Result<Taking, StoreError> {
        let since = Instant::now();
        let text = self.setting().statements.look_inside(key, self.setting().at_once);
        let rows = match connection.fetch_all(AssertSqlSafe(text)).await {
            Ok(rows) => rows,
            // At some isolation levels, such as `SERIALIZABLE`, a read takes a lock.
            Err(error) => return self.unless_locked(connection, error).await.map(|()| Taking::Refused(busy)),
        };
        let unreadable = |unreadable: Unreadable| unreadable.error(key);
        let now = now(rows.first(), 0).map_err(unreadable)?;
        let old = rows.get(1).map(change::read).transpose().map_err(unreadable)?.map(|row| row.record);
        let transition = protocol::claim(old.as_ref(), Fence::default(), request, now);
        Ok(match (transition.write, transition.answer) {
            (Some(new), ClaimAnswer::Granted(grant)) => {
                match self.lock(connection, key, old.as_ref(), &new).await? {
                    true => sql::taken(Seen { old, new, grant, now }, now, since),
                    false => Taking::Refused(busy),
                }
            }
            // The record may be from an old snapshot, and other transactions may have locked or changed it
            // since. So the answer counts only if this transaction can lock the unchanged record.
            (_, answer)
                if let Some(old) = &old
                    && self.lock(connection, key, Some(old), old).await? =>
            {
                Taking::Refused(answer)
            }
            _ => Taking::Refused(busy),
        })
    }

    /// Locks the row of the key's record. Without a record, locks the position where its row will be
    /// inserted. Returns whether this transaction has the lock.
    async fn lock(
        &self,
        connection: &mut MySqlConnection,
        key: &RecordKey,
        old: Option<&Record>,
        new: &Record,
    ) -> Result<bool, StoreError> {
        let Setting { statements, at_once, .. } = self.setting();
        let has_lock = match old {
            Some(old) => {
                let text = statements.lock_seen(key, old, at_once);
                connection.fetch_all(AssertSqlSafe(text)).await.map(|rows| !rows.is_empty())
            }
            None => {
                let text = statements.lock_place(key, new, at_once);
                // Two rows were written: the row was inserted, and then deleted.
                connection.execute(AssertSqlSafe(text)).await.map(|done| done.rows_affected() == 2)
            }
        };
        match has_lock {
            Ok(has_lock) => Ok(has_lock),
            Err(error) => self.unless_locked(connection, error).await.map(|()| false),
        }
    }

    /// Returns this error, unless it only reports that another transaction has a lock. Makes a commit
    /// impossible if the error may have ended the caller's transaction.
    async fn unless_locked(
        &self,
        connection: &mut MySqlConnection,
        error: sqlx::Error,
    ) -> Result<(), StoreError> {
        if failure::is_lock_wait(&error) {
            let ends = connection.fetch_one(ENDS_TRANSACTIONS).await;
            if ends.is_ok_and(|row| column::<u64>(&row, 0, "ends") == Ok(0)) {
                return Ok(());
            }
        }
        if failure::may_end_transaction(&error) {
            // The server may have rolled back the caller's earlier writes, so the caller must not commit
            // later writes.
            Self::spoil(connection).await;
        }
        Err(failed(&error))
    }
}

impl TransactionStore for MySqlStore {
    type Itself = Self;

    fn itself(self) -> Self {
        self
    }

    async fn announce(&self) -> Result<(), StoreError> {
        self.0.announce().await
    }
}

impl RecordsIn<MySqlConnection> for MySqlStore {
    /// The nesting depth, which identifies the savepoint: the driver numbers its savepoints by their depth.
    type Mark = usize;

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
            // Requests, without a write, the grant that a claim would get. An inner error is the answer that
            // refuses the claim.
            let seen = self.0.ask(key, Op::Look(request.clone()), |answer| match answer {
                Answer::Seen(seen) => Some(Ok(seen)),
                Answer::Applied(protocol::Answer::Claim(answer)) => Some(Err(answer)),
                _ => None,
            });
            let seen = match seen.await? {
                Ok(seen) => seen,
                Err(busy @ ClaimAnswer::Busy { .. }) if !self.setting().at_once.is_empty() => {
                    return self.take_again(connection, key, request, busy).await;
                }
                Err(answer) => return Ok(Taking::Refused(answer)),
            };
            let since = Instant::now();
            if self.lock(connection, key, seen.old.as_ref(), &seen.new).await? {
                // The savepoint of `mark` shows whether the transaction is still the same, so `begun` need
                // not be exact.
                let begun = seen.now;
                return Ok(sql::taken(*seen, begun, since));
            }
        }
        Ok(Taking::Refused(sql::HELD))
    }

    async fn mark(connection: &mut MySqlConnection) -> Result<usize, StoreError> {
        MySqlTransactionManager::begin(connection, None).await.map_err(|error| failed(&error))?;
        Ok(MySqlTransactionManager::get_transaction_depth(connection))
    }

    async fn undo(connection: &mut MySqlConnection, mark: &mut usize) -> Result<(), StoreError> {
        sql::innermost::<MySqlTransactionManager>(connection, *mark).await?;
        sql::roll_back::<MySqlTransactionManager>(connection).await.map_err(|error| failed(&error))
    }

    fn undo_first(connection: &mut MySqlConnection, mark: &mut usize) {
        // If the depth is less than the mark, a nested `begin` was dropped, and the driver has already rolled
        // back.
        while MySqlTransactionManager::get_transaction_depth(connection) >= *mark {
            MySqlTransactionManager::start_rollback(connection);
        }
    }

    async fn keep(connection: &mut MySqlConnection, mark: &mut usize) -> Result<(), StoreError> {
        sql::innermost::<MySqlTransactionManager>(connection, *mark).await?;
        MySqlTransactionManager::commit(connection).await.map_err(|error| failed(&error))
    }

    async fn record(
        &self,
        connection: &mut MySqlConnection,
        key: &RecordKey,
        taken: &Taken,
        request: &Complete,
    ) -> Result<CompleteAnswer, StoreError> {
        let Some(record) = sql::recorded(taken, request, self.0.max_result_bytes)? else {
            return Ok(CompleteAnswer::Lost);
        };
        let statements = &self.setting().statements;
        // Fails if a statement of the body has ended the transaction, because then the record would be
        // committed alone.
        execute(connection, IS_OPEN.to_owned()).await?;
        if let Some(old) = &taken.old
            && execute(connection, statements.delete_seen(key, old)).await? == 0
        {
            return Ok(CompleteAnswer::Lost);
        }
        match connection.execute(AssertSqlSafe(statements.insert([(key, &record)].into_iter()))).await {
            Err(error) if failure::is_duplicate(&error) => return Ok(CompleteAnswer::Lost),
            written => written.map_err(|error| failed(&error))?,
        };
        if taken.old.as_ref().is_some_and(|old| !old.steps.is_empty()) {
            execute(connection, statements.delete_steps(sql::name(key))).await?;
        }
        Ok(CompleteAnswer::Done)
    }

    async fn spoil(connection: &mut MySqlConnection) {
        // The statement ends the connection, so it returns an error. But the error may also be from a
        // rollback that the driver had to send first. So the statement is repeated.
        for _ in 0..3 {
            let _ = connection.execute(SPOIL).await;
        }
    }
}

impl TransactionPool<MySqlStore> for MySqlPool {
    type Connection = MySqlConnection;
    type Transaction = MySqlTransaction<'static>;

    async fn begin(&self) -> Result<Self::Transaction, StoreError> {
        Self::begin(self).await.map_err(|error| failure::of_connect(&error).error)
    }

    fn connection(transaction: &mut Self::Transaction) -> &mut MySqlConnection {
        transaction
    }

    async fn commit(transaction: Self::Transaction) -> Result<(), StoreError> {
        transaction.commit().await.map_err(|error| failed(&error))
    }

    async fn roll_back(transaction: Self::Transaction) {
        let _ = transaction.rollback().await;
    }
}
