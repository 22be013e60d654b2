//! Records in a transaction of the caller: what no database is needed for.

use std::time::Duration;

use idem_core::StoreError;
use idem_core::protocol::{self, ClaimAnswer, Complete, Record, Timestamp};
use idem_core::transaction::{Taken, Taking};
use tokio::time::Instant;

use crate::group_commit::Seen;

/// The answer to a duplicate while a caller's transaction has the key. When that ends is unknown.
pub const HELD: ClaimAnswer = ClaimAnswer::Busy { retry_after: Duration::from_secs(1) };

/// The key is this transaction's, which began at the instant `begun` if that matters. `since`: when the key was taken, by tokio's clock.
#[must_use]
pub fn taken(Seen { old, new, grant, now }: Seen, begun: Timestamp, since: Instant) -> Taking {
    // The claim does not expire, however long the transaction takes: nobody else sees it.
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
