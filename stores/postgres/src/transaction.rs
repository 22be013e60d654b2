//! Records in a transaction of the caller, on its connection.
//!
//! The transaction claims the key by an advisory lock. A duplicate does not wait for this lock, but finds it
//! held. The record is written when the body has ended. The claim writes no record, because nobody else could
//! see that record before the commit.

use tokio::time::Instant;

use super::PostgresStore;
use super::rows;
use super::statements::Statements;
use crate::driver::{DriverTransaction, END_SESSION, Parameter, Query, Row};
use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::protocol::{
    self, Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Record, Timestamp, Transition,
};
use idem_core::transaction::{RecordsIn, Taken, Taking, TransactionStore};
use idem_store_kit::columns::Unreadable;
use idem_store_kit::group_commit::Seen;
use idem_store_kit::sql::{HELD, recorded, taken};

/// A statement that the server always refuses. Its text gives the reason to readers of the server's log and
/// of `pg_stat_activity`.
const SPOIL: &str = "SELECT 'idem: the result of a call could not be recorded; roll back'::integer";

/// The row that the statement `take` returns.
struct Look {
    now: Timestamp,
    begun: Timestamp,
    /// Whether this transaction has the lock. The statement requests the lock only if the key may be free.
    is_locked: bool,
    record: Option<Record>,
}

fn read(row: &impl Row) -> Result<Look, Unreadable> {
    Ok(Look {
        now: Timestamp::from_micros(rows::unsigned(row, 0, "now")?),
        begun: Timestamp::from_micros(rows::unsigned(row, 1, "begun")?),
        is_locked: rows::optional(row, 2, "locked")? == Some(1),
        record: match rows::optional(row, 3, "found")? {
            Some(1) => Some(rows::read(row, 4)?),
            _ => None,
        },
    })
}

impl PostgresStore {
    fn statements(&self) -> &Statements {
        &self.0.server().statements
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
        Query::new(text, parameters, self.0.server().connector.opener.is_shared())
    }
}

/// The parameters that `insert` and `replace` share.
fn parameters<'a>(key: &'a RecordKey, record: &'a Record, begun: Timestamp) -> Vec<Parameter<'a>> {
    let (tombstone, bytes) = rows::result_columns(record.result.as_ref());
    let instant = |instant| Parameter::BigInt(Some(rows::instant(instant)));
    vec![
        Parameter::Bytes(Some(key.scope().as_str().as_bytes())),
        Parameter::Bytes(Some(key.key().as_str().as_bytes())),
        Parameter::SmallInt(Some(rows::word(record.state))),
        Parameter::Bytes(Some(record.owner.as_bytes())),
        Parameter::BigInt(Some(rows::integer(record.fence.get()))),
        Parameter::BigInt(Some(i64::from(record.attempt))),
        Parameter::Boolean(record.recovered),
        Parameter::SmallInt(Some(rows::word(record.on_crash))),
        instant(record.lease_until),
        instant(record.retry_at),
        Parameter::BigInt(Some(rows::micros(record.ttl))),
        Parameter::Bytes(rows::fingerprint(record.fingerprint.as_ref())),
        Parameter::SmallInt(tombstone),
        instant(record.created_at),
        Parameter::BigInt(record.completed_at.map(rows::instant)),
        Parameter::BigInt(record.expires_at.map(rows::instant)),
        Parameter::Bytes(bytes),
        instant(begun),
    ]
}

/// The parameters that identify the version of the record that was read. Each later version differs in at
/// least one of them, unless only a step was added.
fn read_before(old: &Record) -> [Parameter<'_>; 5] {
    [
        Parameter::SmallInt(Some(rows::word(old.state))),
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

    async fn announce(&self) -> Result<(), StoreError> {
        self.0.announce().await
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
            let Look { now, begun, is_locked, record } = self.look(tx, key).await?;
            let since = Instant::now();
            match protocol::claim(record.as_ref(), Fence::default(), request, now) {
                Transition { write: Some(new), answer: ClaimAnswer::Granted(grant), .. } => {
                    if !is_locked {
                        return Ok(Taking::Refused(HELD));
                    }
                    if has_lock {
                        return Ok(taken(Seen { old: record, new, grant, now }, begun, since));
                    }
                    // The row may have been read before the previous holder of the lock committed, so it is
                    // read again.
                    has_lock = true;
                }
                // A change to `in doubt` or `exhausted` is not written here, because every later claim comes
                // to the same decision.
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
        let Some(record) = recorded(taken, request, self.0.max_result_bytes)? else {
            return Ok(CompleteAnswer::Lost);
        };
        let statements = self.statements();
        let mut parameters = parameters(key, &record, taken.begun);
        let text = match &taken.old {
            None => &statements.insert,
            Some(old) => {
                parameters.extend(read_before(old));
                &statements.replace
            }
        };
        let given = tx.query(self.query(text, &parameters)).await?;
        Ok(if given.is_empty() { CompleteAnswer::Lost } else { CompleteAnswer::Done })
    }

    async fn spoil(tx: &mut C) {
        // The server refuses this statement, and thereby aborts the transaction. If the statement cannot be
        // sent, the connection is lost, and the transaction with it.
        let _ = tx.execute(SPOIL).await;
        // If no transaction is open any more, each later statement of the caller would commit by itself. So
        // `END_SESSION` ends the session. In an aborted transaction, the server refuses `END_SESSION`.
        let _ = tx.execute(END_SESSION).await;
    }
}
