//! Recording in a transaction of the caller's, on its connection.
//!
//! The key is taken by an advisory lock of the transaction, which a duplicate finds held at once; the
//! record is written when the body is done. Nobody sees the time between, so nothing is written for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sqlx::postgres::{PgConnection, PgRow, PgTransactionManager};
use sqlx::{Connection as _, Executor as _, Row as _};
use sqlx_core::transaction::TransactionManager as _;
use tokio::time::Instant;

use super::PostgresStore;
use super::queue::Setting;
use super::rows::{self, Unreadable};
use super::statements::{RETRY_AFTER, Statements};
use crate::db::failure::{self, Failure};
use crate::db::session::{Statement, statement};
use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::protocol::{
    self, Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Fingerprint, Record, Timestamp, Transition,
};
use idem_core::support::own_runtime::apart;
use idem_core::support::retry::retried;
use idem_core::transaction::{Taken, Taking, TransactionStore};

/// A statement that the server refuses, in words that its log and `pg_stat_activity` show.
const SPOIL: &str = "SELECT 'idem: the result of a call could not be recorded; roll back'::integer";

fn failed(error: &sqlx::Error) -> StoreError {
    match failure::of_statement(error) {
        // A transaction goes with its connection, so what was sent in it was not applied.
        Failure::Broken(error) => StoreError::unavailable(error.to_string()),
        Failure::Refused(error) | Failure::ReadOnly(error) => error,
    }
}

/// What the statement found.
struct Look {
    now: Timestamp,
    begun: Timestamp,
    floor: Fence,
    /// Whether the lock is this transaction's; `None` where it was not asked for.
    locked: Option<bool>,
    record: Option<Record>,
}

fn read(row: &PgRow) -> Result<Look, Unreadable> {
    Ok(Look {
        now: Timestamp::from_micros(rows::unsigned(row, 0, "now")?),
        begun: Timestamp::from_micros(rows::unsigned(row, 1, "begun")?),
        floor: Fence::new(rows::unsigned(row, 2, "fence_floor")?),
        locked: rows::column(row, 3, "locked")?,
        record: match rows::column::<bool>(row, 4, "found")? {
            true => Some(rows::read(row, 5)?),
            false => None,
        },
    })
}

impl PostgresStore {
    fn statements(&self) -> &Statements {
        &self.0.queues.setting().statements
    }

    /// Has all processes take a lock for each claim from now on, so that they find a key that a transaction has.
    async fn announce(&self) -> Result<(), StoreError> {
        if self.0.announced.load(Ordering::Relaxed) {
            return Ok(());
        }
        let queues = self.0.queues.clone();
        apart(async move {
            let setting = queues.setting();
            retried(setting.connector.timeout(), || announce(setting)).await
        })
        .await?;
        self.0.announced.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn look(&self, connection: &mut PgConnection, key: &RecordKey) -> Result<Look, StoreError> {
        let query = statement(&self.statements().take)
            .bind(key.scope().as_str().as_bytes())
            .bind(key.key().as_str().as_bytes())
            .bind(self.statements().lock_number(key));
        let given = connection.fetch_all(query).await.map_err(|error| failed(&error))?;
        let row = given.first().ok_or(Unreadable("now"));
        row.and_then(read).map_err(|unreadable| unreadable.error(key))
    }
}

async fn announce(setting: &Setting) -> Result<(), StoreError> {
    let Setting { connector, statements, .. } = setting;
    let mut session = connector.connect().await?;
    let announced = async {
        let found = session.fetch_all(statement(&statements.transactions)).await?;
        let value = found.first().and_then(|row| row.try_get::<i64, _>(0).ok());
        if value == Some(0) {
            session.fetch_all(statement(&statements.set_transactions)).await?;
        } else if value.is_none() {
            // A table of before.
            session.fetch_all(statement(&statements.insert_transactions)).await?;
        }
        Ok(())
    };
    let announced = announced.await.map_err(Failure::error);
    session.close(connector.timeout()).await;
    announced
}

/// Binds what `insert` and `replace` have in common.
fn bound(text: &Arc<str>, key: &RecordKey, record: &Record, begun: Timestamp) -> Statement {
    let (tombstone, bytes) = rows::result_columns(record.result.as_ref());
    statement(text)
        .bind(key.scope().as_str().as_bytes())
        .bind(key.key().as_str().as_bytes())
        .bind(rows::state_word(record.state))
        .bind(record.owner.as_bytes().as_slice())
        .bind(rows::integer(record.fence.get()))
        .bind(i64::from(record.attempt))
        .bind(record.recovered)
        .bind(rows::on_crash_word(record.on_crash))
        .bind(rows::instant(record.lease_until))
        .bind(rows::instant(record.retry_at))
        .bind(rows::micros(record.ttl))
        .bind(record.fingerprint.as_ref().map(|print| Fingerprint::as_bytes(print).as_slice()))
        .bind(tombstone)
        .bind(rows::instant(record.created_at))
        .bind(record.completed_at.map(rows::instant))
        .bind(record.expires_at.map(rows::instant))
        .bind(bytes)
        .bind(rows::instant(begun))
}

impl TransactionStore for PostgresStore {
    type Itself = Self;
    type Connection = PgConnection;

    fn is_open(connection: &PgConnection) -> bool {
        connection.is_in_transaction()
    }

    fn itself(self) -> Self {
        self
    }

    async fn take(
        &self,
        connection: &mut PgConnection,
        key: &RecordKey,
        request: &Claim,
    ) -> Result<Taking, StoreError> {
        self.announce().await?;
        let mut has_lock = false;
        loop {
            let Look { now, begun, floor, locked, record } = self.look(connection, key).await?;
            let since = Instant::now();
            match protocol::claim(record.as_ref(), floor, request, now) {
                Transition { write: Some(new), answer: ClaimAnswer::Granted(grant), .. } => {
                    if locked != Some(true) {
                        let busy = ClaimAnswer::Busy { retry_after: RETRY_AFTER };
                        return Ok(Taking::Refused(busy));
                    }
                    if has_lock {
                        // However long the transaction takes: nobody can see the claim expire.
                        let new = new.with_expires_at(None);
                        return Ok(Taking::Taken(Box::new(Taken {
                            grant,
                            old: record,
                            new,
                            begun,
                            at: now,
                            since,
                        })));
                    }
                    // The row may have been read before who had the lock committed: once more.
                    has_lock = true;
                }
                // In doubt and exhausted are found again by each who asks: they need not be written here.
                Transition { answer, .. } => return Ok(Taking::Refused(answer)),
            }
        }
    }

    async fn mark(connection: &mut PgConnection) -> Result<(), StoreError> {
        PgTransactionManager::begin(connection, None).await.map_err(|error| failed(&error))
    }

    async fn undo(connection: &mut PgConnection) -> Result<(), StoreError> {
        let undone = PgTransactionManager::rollback(connection).await.map_err(|error| failed(&error));
        if undone.is_err() {
            // The mark is gone with the transaction it was in; the driver must not go on counting it.
            PgTransactionManager::start_rollback(connection);
        }
        undone
    }

    fn undo_first(connection: &mut PgConnection) {
        PgTransactionManager::start_rollback(connection);
    }

    async fn keep(connection: &mut PgConnection) -> Result<(), StoreError> {
        PgTransactionManager::commit(connection).await.map_err(|error| failed(&error))
    }

    async fn record(
        &self,
        connection: &mut PgConnection,
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
        let replace = |old: &Record| match protocol::is_live(old, taken.at) {
            true => &statements.replace,
            false => &statements.replace_expired,
        };
        let query = match &taken.old {
            None => bound(&statements.insert, key, &record, taken.begun),
            Some(old) => bound(replace(old), key, &record, taken.begun)
                .bind(rows::state_word(old.state))
                .bind(old.owner.as_bytes().as_slice())
                .bind(rows::integer(old.fence.get()))
                .bind(rows::instant(old.lease_until))
                .bind(old.expires_at.map(rows::instant)),
        };
        let given = connection.fetch_all(query).await.map_err(|error| failed(&error))?;
        Ok(if given.is_empty() { CompleteAnswer::Lost } else { CompleteAnswer::Done })
    }

    async fn spoil(connection: &mut PgConnection) {
        // It is to fail; where it cannot be sent, the connection and with it the transaction is gone.
        let _ = connection.execute(SPOIL).await;
    }
}
