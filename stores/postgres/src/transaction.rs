//! Records in a transaction of the caller, on its connection.
//!
//! An advisory lock of the transaction claims the key: a duplicate finds it held at once. The record is written when the body has
//! ended. Nobody can see the claim before that, so no record is written for it.

use std::sync::atomic::Ordering;

use sqlx::Row as _;
use tokio::time::Instant;

use super::PostgresStore;
use super::rows::{self, Unreadable};
use super::setting::Setting;
use super::statements::{RETRY_AFTER, Statements};
use crate::db::failure::Failure;
use crate::db::session::statement;
use crate::driver::{DriverTransaction, Parameter, Query, Row};
use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::protocol::{
    self, Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Fingerprint, Record, Timestamp, Transition,
};
use idem_core::support::own_runtime::apart;
use idem_core::support::retry::retried;
use idem_core::transaction::{RecordsIn, Taken, Taking, TransactionStore};

/// A statement that the server refuses. Its text explains why in the server's log and in `pg_stat_activity`.
const SPOIL: &str = "SELECT 'idem: the result of a call could not be recorded; roll back'::integer";

/// The result of the statement that claims.
struct Look {
    now: Timestamp,
    begun: Timestamp,
    /// Whether this transaction has the lock; `None` if the statement did not ask for it.
    locked: Option<bool>,
    record: Option<Record>,
}

fn read(row: &impl Row) -> Result<Look, Unreadable> {
    Ok(Look {
        now: Timestamp::from_micros(rows::unsigned(row, 0, "now")?),
        begun: Timestamp::from_micros(rows::unsigned(row, 1, "begun")?),
        locked: rows::boolean(row, 2, "locked")?,
        record: match rows::boolean(row, 3, "found")? {
            Some(true) => Some(rows::read(row, 4)?),
            _ => None,
        },
    })
}

impl PostgresStore {
    fn statements(&self) -> &Statements {
        &self.0.records.server().statements
    }

    /// Marks in the table that callers use transactions: from then on all processes take a lock for each claim, and so find a key
    /// that a transaction has.
    async fn announce(&self) -> Result<(), StoreError> {
        if self.0.announced.load(Ordering::Relaxed) {
            return Ok(());
        }
        let queues = self.0.records.queues();
        apart(async move {
            let setting = queues.server();
            retried(setting.connector.timeout(), || announce(setting)).await
        })
        .await?;
        self.0.announced.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn look(&self, tx: &mut impl DriverTransaction, key: &RecordKey) -> Result<Look, StoreError> {
        let parameters = [
            Parameter::Bytes(Some(key.scope().as_str().as_bytes())),
            Parameter::Bytes(Some(key.key().as_str().as_bytes())),
            Parameter::BigInt(Some(self.statements().lock_number(key))),
        ];
        let given = tx.query(self.query(&self.statements().take, &parameters)).await?;
        let row = given.first().ok_or(Unreadable("now"));
        row.and_then(read).map_err(|unreadable| unreadable.error(key))
    }

    fn query<'a>(&self, text: &'a str, parameters: &'a [Parameter<'a>]) -> Query<'a> {
        Query::new(text, parameters, self.0.records.server().connector.is_shared())
    }
}

async fn announce(setting: &Setting) -> Result<(), StoreError> {
    let Setting { connector, statements, .. } = setting;
    let mut session = connector.connect().await?;
    let announced = async {
        let found = session.fetch_all(statement(&statements.transactions)).await?;
        // Only where it is not set: an update is a commit.
        if found.first().and_then(|row| row.try_get::<i64, _>(0).ok()) == Some(0) {
            session.fetch_all(statement(&statements.set_transactions)).await?;
        }
        Ok(())
    };
    let announced = announced.await.map_err(Failure::error);
    session.close(connector.timeout()).await;
    announced
}

/// The parameters that `insert` and `replace` share.
fn parameters<'a>(key: &'a RecordKey, record: &'a Record, begun: Timestamp) -> Vec<Parameter<'a>> {
    let (tombstone, bytes) = rows::result_columns(record.result.as_ref());
    let instant = |instant| Parameter::BigInt(Some(rows::instant(instant)));
    vec![
        Parameter::Bytes(Some(key.scope().as_str().as_bytes())),
        Parameter::Bytes(Some(key.key().as_str().as_bytes())),
        Parameter::SmallInt(Some(rows::state_word(record.state))),
        Parameter::Bytes(Some(record.owner.as_bytes())),
        Parameter::BigInt(Some(rows::integer(record.fence.get()))),
        Parameter::BigInt(Some(i64::from(record.attempt))),
        Parameter::Boolean(record.recovered),
        Parameter::SmallInt(Some(rows::on_crash_word(record.on_crash))),
        instant(record.lease_until),
        instant(record.retry_at),
        Parameter::BigInt(Some(rows::micros(record.ttl))),
        Parameter::Bytes(record.fingerprint.as_ref().map(|print| Fingerprint::as_bytes(print).as_slice())),
        Parameter::SmallInt(tombstone),
        instant(record.created_at),
        Parameter::BigInt(record.completed_at.map(rows::instant)),
        Parameter::BigInt(record.expires_at.map(rows::instant)),
        Parameter::Bytes(bytes),
        instant(begun),
    ]
}

/// The parameters that identify the record that was read among all records of its key.
fn read_before(old: &Record) -> [Parameter<'_>; 5] {
    [
        Parameter::SmallInt(Some(rows::state_word(old.state))),
        Parameter::Bytes(Some(old.owner.as_bytes())),
        Parameter::BigInt(Some(rows::integer(old.fence.get()))),
        Parameter::BigInt(Some(rows::instant(old.lease_until))),
        Parameter::BigInt(old.expires_at.map(rows::instant)),
    ]
}

impl TransactionStore for PostgresStore {
    type Itself = Self;

    fn itself(self) -> Self {
        self
    }
}

impl<C: DriverTransaction> RecordsIn<C> for PostgresStore {
    type Mark = C::Savepoint;

    fn is_open(tx: &mut C) -> bool {
        tx.is_open()
    }

    async fn take(&self, tx: &mut C, key: &RecordKey, request: &Claim) -> Result<Taking, StoreError> {
        self.announce().await?;
        let mut has_lock = false;
        loop {
            let Look { now, begun, locked, record } = self.look(tx, key).await?;
            let since = Instant::now();
            match protocol::claim(record.as_ref(), Fence::default(), request, now) {
                Transition { write: Some(new), answer: ClaimAnswer::Granted(grant), .. } => {
                    if locked != Some(true) {
                        let busy = ClaimAnswer::Busy { retry_after: RETRY_AFTER };
                        return Ok(Taking::Refused(busy));
                    }
                    if has_lock {
                        // The claim does not expire, however long the transaction takes: nobody else sees it.
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
                    // The row may have been read before the previous holder of the lock committed, so it is read again.
                    has_lock = true;
                }
                // `in doubt` and `exhausted` need not be written here: every later claim finds them again.
                Transition { answer, .. } => return Ok(Taking::Refused(answer)),
            }
        }
    }

    async fn mark(tx: &mut C) -> Result<C::Savepoint, StoreError> {
        tx.set_savepoint().await
    }

    async fn undo(tx: &mut C, mark: &mut C::Savepoint) -> Result<(), StoreError> {
        tx.roll_back_to(mark).await
    }

    fn undo_first(tx: &mut C, mark: &mut C::Savepoint) {
        tx.roll_back_first(mark);
    }

    async fn keep(tx: &mut C, mark: &mut C::Savepoint) -> Result<(), StoreError> {
        tx.release(mark).await
    }

    async fn record(
        &self,
        tx: &mut C,
        key: &RecordKey,
        taken: &Taken,
        request: &Complete,
    ) -> Result<CompleteAnswer, StoreError> {
        request.result.check_size(self.0.records.max_result_bytes)?;
        let now = taken.at.after(taken.since.elapsed());
        let Some(record) = protocol::complete(Some(&taken.new), request, now).write else {
            return Ok(CompleteAnswer::Lost);
        };
        let statements = self.statements();
        let replace = |old: &Record| match protocol::is_live(old, taken.at) {
            true => &statements.replace,
            false => &statements.replace_expired,
        };
        let mut parameters = parameters(key, &record, taken.begun);
        let text = match &taken.old {
            None => &statements.insert,
            Some(old) => {
                parameters.extend(read_before(old));
                replace(old)
            }
        };
        let given = tx.query(self.query(text, &parameters)).await?;
        Ok(if given.is_empty() { CompleteAnswer::Lost } else { CompleteAnswer::Done })
    }

    async fn spoil(tx: &mut C) {
        // This must fail. If it cannot be sent, the connection is lost, and the transaction with it.
        let _ = tx.execute(SPOIL).await;
    }
}
