//! Records in a transaction of the caller: what all databases and drivers have in common.

use std::time::Duration;

use idem_core::StoreError;
use idem_core::protocol::{self, ClaimAnswer, Complete, Record, Timestamp};
use idem_core::transaction::{Taken, Taking};
use sqlx_core::database::Database;
use sqlx_core::transaction::TransactionManager;
use tokio::time::Instant;

use crate::group_commit::Seen;

/// The answer to a duplicate while a caller's transaction has the key. The answer names one second as the
/// time to wait, because nobody knows when that transaction ends.
pub const HELD: ClaimAnswer = ClaimAnswer::Busy { retry_after: Duration::from_secs(1) };

/// The outcome for a transaction that has taken the key. `begun` is the start of the transaction. A store
/// that does not identify the transaction by its start may pass any time. `since` is when the transaction
/// took the key, by tokio's clock.
#[must_use]
pub fn taken(Seen { old, new, grant, now }: Seen, begun: Timestamp, since: Instant) -> Taking {
    // The claim does not expire, however long the transaction takes, because nobody else sees the claim.
    let new = new.with_expires_at(None);
    Taking::Taken(Box::new(Taken { grant, old, new, begun, at: now, since }))
}

/// The record with the result of the body that has ended; `None` if the claim is lost.
///
/// # Errors
///
/// `TooLarge` for a result beyond the limit.
pub fn recorded(
    taken: &Taken,
    request: &Complete,
    max_result_bytes: usize,
) -> Result<Option<Record>, StoreError> {
    request.result.check_size(max_result_bytes)?;
    let now = taken.at.after(taken.since.elapsed());
    Ok(protocol::complete(Some(&taken.new), request, now).write)
}

/// The connection of the sqlx driver to which this transaction manager belongs.
type Connection<M> = <<M as TransactionManager>::Database as Database>::Connection;

/// Fails unless the savepoint of this depth is the innermost one. The savepoint may be gone. If a nested
/// `begin` fails or is dropped, sqlx 0.9 rolls back a level that this `begin` did not begin, or two levels.
///
/// # Errors
///
/// [`displaced`].
pub async fn innermost<M: TransactionManager>(
    connection: &mut Connection<M>,
    savepoint: usize,
) -> Result<(), StoreError> {
    if M::get_transaction_depth(connection) == savepoint {
        return Ok(());
    }
    // Makes the driver count the caller's transaction again. While the driver counts no transaction, its
    // `commit` does nothing and succeeds, so the caller would believe that its changes are committed.
    while M::get_transaction_depth(connection) + 1 < savepoint && M::begin(connection, None).await.is_ok() {}
    Err(displaced())
}

/// Rolls back to the innermost savepoint.
///
/// # Errors
///
/// The error of the driver. In that case the savepoint has ended with its transaction, and the driver no
/// longer counts it.
pub async fn roll_back<M: TransactionManager>(
    connection: &mut Connection<M>,
) -> Result<(), sqlx_core::Error> {
    let undone = M::rollback(connection).await;
    if undone.is_err() {
        M::start_rollback(connection);
    }
    undone
}

/// The error if the savepoints that the driver counts are not those of the caller.
#[must_use]
pub fn displaced() -> StoreError {
    StoreError::unavailable(
        "the body's savepoint is gone, as after a nested `begin` that failed or was dropped, so the session was ended: begin a \
         new transaction and call again, and let a body return the error of a nested `begin`",
    )
}
