//! Claims of many keys.
//!
//! Most claims are for new keys, and one statement inserts their records. For the other keys, the existing
//! records decide the answers. If the claims of a key would write nothing, one read of its row answers all of
//! them.

use std::sync::atomic::Ordering;

use sqlx::postgres::PgRow;

use super::compare_and_swap::{Batch, ROUNDS, each, most_keys, names, now_of};
use super::rows::{self, column};
use super::statements::Statements;
use crate::db::failure::Failure;
use crate::db::session::{Session, Statement, statement};
use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::protocol::{self, Claim, Fence, Record, Request, Timestamp};
use idem_store_kit::columns::Unreadable;
use idem_store_kit::group_commit::{Answers, Ticket};
use idem_store_kit::sql::name;

/// Answers claims. The answers have the order of the tickets.
pub(super) async fn claim(
    session: &mut Session,
    statements: &Statements,
    tickets: &[Ticket],
) -> Result<Answers, Failure> {
    let mut batch = Batch::new(statements, tickets);
    let mut read_only = None;
    for _ in 0..ROUNDS {
        let with_locks = statements.with_transactions.load(Ordering::Relaxed);
        if read_only.is_none() {
            read_only = insert(&mut batch, session, with_locks).await?;
        }
        if statements.with_transactions.load(Ordering::Relaxed) != with_locks {
            continue;
        }
        batch.replace(session, with_locks, read_only.as_ref()).await?;
        if batch.open().is_empty() {
            break;
        }
    }
    Ok(batch.end())
}

/// Grants the first claim of each key that has no record, and answers the key's other claims from the new
/// record. Returns the server's error if the server takes no writes.
async fn insert(
    batch: &mut Batch<'_>,
    session: &mut Session,
    with_locks: bool,
) -> Result<Option<StoreError>, Failure> {
    let statements = batch.statements;
    for places in batch.open().chunks(most_keys(with_locks)) {
        let leads: Vec<_> = places.iter().filter_map(|&place| lead(batch, place)).collect();
        let locks: Vec<_> = leads.iter().map(|(key, _)| batch.lock(key, with_locks)).collect();
        let query = with_grants(statement(&statements.claim_new), &leads).bind(locks);
        let inserted = match session.fetch_all(query).await {
            Err(Failure::ReadOnly(error)) => return Ok(Some(error)),
            inserted => inserted?,
        };
        for row in &inserted {
            match granted(row, &leads)? {
                // The new record also answers the claim that wrote it, because the owner of a record gets the
                // same grant again.
                Some((place, record, now)) => drop(batch.judge(places[place], Some(&record), now)),
                None => statements.with_transactions.store(true, Ordering::Relaxed),
            }
        }
    }
    Ok(None)
}

/// The first claim of this group.
fn lead<'t>(batch: &Batch<'t>, place: usize) -> Option<(&'t RecordKey, &'t Claim)> {
    let group = batch.groups.get(place)?;
    match group.requests.first()? {
        (_, Request::Claim(claim)) => Some((group.key, claim)),
        _ => None,
    }
}

/// The record that a row reports as inserted, with the position of its claim in `leads` and the server's
/// time. `None` if the row reports that callers record in their own transactions.
fn granted(
    row: &PgRow,
    leads: &[(&RecordKey, &Claim)],
) -> Result<Option<(usize, Record, Timestamp)>, Unreadable> {
    let Some(scope) = column::<Option<&[u8]>>(row, 0, "scope")? else { return Ok(None) };
    let inserted = (scope, column::<&[u8]>(row, 1, "key")?);
    let place = leads.binary_search_by(|(key, _)| name(key).cmp(&inserted)).map_err(|_| Unreadable("key"))?;
    let (fence, now) = (Fence::new(rows::unsigned(row, 2, "fence")?), now_of(row, 3)?);
    let record = protocol::claim(None, Fence::default(), leads[place].1, now).write;
    Ok(Some((place, record.ok_or(Unreadable("key"))?.with_fence(fence), now)))
}

/// Binds the parameters of the statement `claim_new`, except the numbers of the advisory locks.
fn with_grants(statement: Statement, leads: &[(&RecordKey, &Claim)]) -> Statement {
    let (scopes, keys) = names(leads.iter().map(|(key, _)| *key));
    statement
        .bind(scopes)
        .bind(keys)
        .bind(each(leads, |(_, request)| request.owner.as_bytes().as_slice()))
        .bind(each(leads, |(_, request)| rows::fingerprint(request.fingerprint.as_ref())))
        .bind(each(leads, |(_, request)| rows::micros(request.lease)))
        .bind(each(leads, |(_, request)| rows::micros(request.ttl)))
        .bind(each(leads, |(_, request)| rows::word(request.on_crash)))
}
