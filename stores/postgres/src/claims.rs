//! Claims of many keys in one statement.
//!
//! The statement grants; what it left as it was is judged here, by the protocol's own function on the
//! row it read. Claims of one key are all answered from that row where they would write nothing.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::Ordering;

use sqlx::postgres::PgRow;

use super::compare_and_swap::{Swap, names, now_of, number_of, read, read_all, swap};
use super::rows::{self, COLUMNS, Unreadable, column};
use super::statements::{RETRY_AFTER, Statements};
use crate::db::failure::{Failure, raced};
use crate::db::session::{Session, Statement, statement};
use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::protocol::{
    self, Claim, ClaimAnswer, Fence, Fingerprint, Grant, Record, Request, State, Timestamp,
};
use idem_store_kit::group_commit::{Answer, Answers, Op, Ticket};

/// How often a claim is put again because another was faster.
const ROUNDS: usize = 8;

/// Where the columns of a record begin in the rows of the statement.
const RECORD: usize = 6;
/// The column after them.
const FREE: usize = RECORD + COLUMNS.len();
const LARGE: usize = FREE + 1;

/// A claim and its place in the batch.
type Asking<'t> = (usize, &'t RecordKey, &'t Claim);

/// What is known of one key after the statement.
struct Known {
    record: Option<Record>,
    now: Timestamp,
    granted: Option<Grant>,
    /// Whether a transaction of a caller's has the key, and what it writes is not seen yet.
    in_transaction: bool,
    /// Whether there is a result that the statement did not read.
    large: bool,
}

/// Answers claims, in their order.
pub(super) async fn claim(
    session: &mut Session,
    statements: &Statements,
    tickets: &[Ticket],
) -> Result<Answers, Failure> {
    let mut answers: Vec<Option<Result<ClaimAnswer, StoreError>>> = tickets.iter().map(|_| None).collect();
    let mut later = HashSet::new();
    let read_only = match insert_new(session, statements, tickets, &mut answers).await {
        Err(Failure::ReadOnly(error)) => Some(error),
        inserted => inserted.map(|()| None)?,
    };
    for _ in 0..ROUNDS {
        let open = tickets
            .iter()
            .enumerate()
            .filter(|(index, _)| answers[*index].is_none() && !later.contains(index));
        let mut keys: BTreeMap<(&[u8], &[u8]), Vec<Asking<'_>>> = BTreeMap::new();
        for (index, ticket) in open {
            if let Op::Apply(Request::Claim(request)) = &ticket.operation.op {
                let key = &ticket.operation.key;
                keys.entry(name(key)).or_default().push((index, key, request));
            }
        }
        let groups: Vec<Vec<Asking<'_>>> = keys.into_values().collect();
        if groups.is_empty() {
            break;
        }
        match &read_only {
            Some(error) => replay(session, statements, &groups, error, &mut answers).await?,
            None => round(session, statements, &groups, &mut answers, &mut later).await?,
        }
    }
    let answers = answers.into_iter().enumerate().map(|(index, answer)| match answer {
        None if later.contains(&index) => None,
        answer => Some(answer.unwrap_or_else(|| Err(raced())).map(|answer| Answer::Applied(answer.into()))),
    });
    Ok(answers.collect())
}

/// Grants the claims of keys that have no record, among those that seem to have none.
async fn insert_new(
    session: &mut Session,
    statements: &Statements,
    tickets: &[Ticket],
    answers: &mut [Option<Result<ClaimAnswer, StoreError>>],
) -> Result<(), Failure> {
    if statements.with_transactions.load(Ordering::Relaxed) {
        return Ok(());
    }
    let new = tickets.iter().enumerate().filter_map(|(index, ticket)| match &ticket.operation.op {
        Op::Apply(Request::Claim(request)) if ticket.operation.seems_new => {
            Some((index, &ticket.operation.key, request))
        }
        _ => None,
    });
    let mut leads: Vec<Asking<'_>> = new.collect();
    leads.sort_by_key(|(_, key, _)| name(key));
    leads.dedup_by_key(|(_, key, _)| name(key));
    if leads.is_empty() {
        return Ok(());
    }
    let found = session.fetch_all(with_grants(statement(&statements.claim_new), &leads)).await?;
    for row in &found {
        match granted(row, &leads).map_err(Unreadable::failure)? {
            Some((index, grant)) => answers[index] = Some(Ok(ClaimAnswer::Granted(grant))),
            None => {
                statements.with_transactions.store(true, Ordering::Relaxed);
                return Ok(());
            }
        }
    }
    leads.retain(|(index, ..)| answers[*index].is_none());
    look(session, statements, &leads, answers).await
}

/// Answers what needs no writing, of keys that have a record: most are duplicates of what is done. A read costs the server less
/// than the statement of a claim.
async fn look(
    session: &mut Session,
    statements: &Statements,
    leads: &[Asking<'_>],
    answers: &mut [Option<Result<ClaimAnswer, StoreError>>],
) -> Result<(), Failure> {
    if leads.is_empty() {
        return Ok(());
    }
    let keys: Vec<&RecordKey> = leads.iter().map(|(_, key, _)| *key).collect();
    for ((index, _, request), found) in leads.iter().zip(read(session, statements, &keys).await?) {
        if let Some(Ok((record, now))) = found {
            let step = protocol::claim(record.as_ref(), Fence::default(), request, now);
            answers[*index] = step.write.is_none().then_some(Ok(step.answer));
        }
    }
    Ok(())
}

/// The claim whose record a row says was inserted, or `None` where it says that records are made in callers' transactions.
fn granted(row: &PgRow, leads: &[Asking<'_>]) -> Result<Option<(usize, Grant)>, Unreadable> {
    let Some(scope) = column::<Option<&[u8]>>(row, 0, "scope")? else { return Ok(None) };
    let inserted = (scope, column::<&[u8]>(row, 1, "key")?);
    let place =
        leads.binary_search_by(|(_, key, _)| name(key).cmp(&inserted)).map_err(|_| Unreadable("key"))?;
    let (fence, now) = (Fence::new(rows::unsigned(row, 2, "fence")?), now_of(row, 3)?);
    let (index, _, request) = leads[place];
    let step = protocol::claim(None, Fence::default(), request, now);
    let record = step.write.ok_or(Unreadable("key"))?.with_fence(fence);
    Ok(Some((index, protocol::granted(&record, request, now))))
}

/// A key as the columns have it, and in their order.
fn name(key: &RecordKey) -> (&[u8], &[u8]) {
    (key.scope().as_str().as_bytes(), key.key().as_str().as_bytes())
}

/// Puts the first claim of each key, and answers what can be answered then.
async fn round(
    session: &mut Session,
    statements: &Statements,
    groups: &[Vec<Asking<'_>>],
    answers: &mut [Option<Result<ClaimAnswer, StoreError>>],
    later: &mut HashSet<usize>,
) -> Result<(), Failure> {
    let leads: Vec<Asking<'_>> = groups.iter().map(|group| group[0]).collect();
    let known = match put(session, statements, &leads).await {
        Err(Failure::ReadOnly(error)) => return replay(session, statements, groups, &error, answers).await,
        known => read_large(session, statements, &leads, known?).await?,
    };
    let mut swaps = Vec::new();
    let mut swapped = Vec::new();
    for (group, known) in groups.iter().zip(known) {
        let Some(known) = known else {
            later.extend(group.iter().map(|(index, ..)| *index));
            continue;
        };
        let Known { record, now, granted, in_transaction, .. } = match known {
            Ok(known) => known,
            Err(unreadable) => {
                for (index, key, _) in group {
                    answers[*index] = Some(Err(unreadable.error(key)));
                }
                continue;
            }
        };
        for (place, (index, key, request)) in group.iter().enumerate() {
            if let Some(grant) = granted.filter(|_| place == 0) {
                answers[*index] = Some(Ok(ClaimAnswer::Granted(grant)));
                continue;
            }
            let step = protocol::claim(record.as_ref(), Fence::default(), request, now);
            match (step.write, &record) {
                (None, _) => answers[*index] = Some(Ok(step.answer)),
                (Some(_), _) if in_transaction => {
                    answers[*index] = Some(Ok(ClaimAnswer::Busy { retry_after: RETRY_AFTER }));
                }
                // It is in doubt or exhausted by now. A grant was the statement's, and another was faster.
                (Some(new), Some(old)) if place == 0 && !matches!(step.answer, ClaimAnswer::Granted(_)) => {
                    swaps.push(Swap { key, old: old.clone(), new });
                    swapped.push((*index, step.answer));
                }
                (Some(_), _) => {}
            }
        }
    }
    let done = swap(session, statements, &swaps).await?;
    for ((index, answer), done) in swapped.into_iter().zip(done) {
        if done {
            answers[index] = Some(Ok(answer));
        }
    }
    Ok(())
}

/// Reads the large results, as many as one statement may carry.
async fn read_large(
    session: &mut Session,
    statements: &Statements,
    leads: &[Asking<'_>],
    known: Vec<Result<Known, Unreadable>>,
) -> Result<Vec<Option<Result<Known, Unreadable>>>, Failure> {
    let is_large = |known: &Result<Known, Unreadable>| known.as_ref().is_ok_and(|known| known.large);
    let large: Vec<usize> = (0..known.len()).filter(|&place| is_large(&known[place])).collect();
    let mut known: Vec<_> = known.into_iter().map(Some).collect();
    if !large.is_empty() {
        let keys: Vec<&RecordKey> = large.iter().map(|&place| leads[place].1).collect();
        for (place, found) in large.into_iter().zip(read(session, statements, &keys).await?) {
            known[place] = found.map(|found| {
                found.map(|(record, now)| Known {
                    record,
                    now,
                    granted: None,
                    in_transaction: false,
                    large: false,
                })
            });
        }
    }
    Ok(known)
}

/// Answers from results alone, where the server takes no writes; the others get the `error`.
async fn replay(
    session: &mut Session,
    statements: &Statements,
    groups: &[Vec<Asking<'_>>],
    error: &StoreError,
    answers: &mut [Option<Result<ClaimAnswer, StoreError>>],
) -> Result<(), Failure> {
    let keys: Vec<&RecordKey> = groups.iter().map(|group| group[0].1).collect();
    for (group, found) in groups.iter().zip(read_all(session, statements, &keys).await?) {
        let found = found.map_err(|unreadable| unreadable.error(group[0].1));
        for (index, _, request) in group {
            answers[*index] = Some(found.clone().and_then(|(record, now)| {
                let step = protocol::claim(record.as_ref(), Fence::default(), request, now);
                let done =
                    record.is_some_and(|record| matches!(record.state, State::Completed | State::Failed));
                if done && step.write.is_none() { Ok(step.answer) } else { Err(error.clone()) }
            }));
        }
    }
    Ok(())
}

/// The parameters that a first grant needs.
fn with_grants(statement: Statement, leads: &[Asking<'_>]) -> Statement {
    let each = |of: fn(&Claim) -> i64| leads.iter().map(|(_, _, request)| of(request)).collect::<Vec<i64>>();
    let (scopes, keys) = names(leads.iter().map(|(_, key, _)| *key));
    let prints = leads.iter().map(|(_, _, request)| {
        request.fingerprint.as_ref().map(|print| Fingerprint::as_bytes(print).as_slice())
    });
    statement
        .bind(scopes)
        .bind(keys)
        .bind(leads.iter().map(|(_, _, request)| request.owner.as_bytes().as_slice()).collect::<Vec<_>>())
        .bind(prints.collect::<Vec<Option<&[u8]>>>())
        .bind(each(|request| rows::micros(request.lease)))
        .bind(each(|request| rows::micros(request.ttl)))
        .bind(leads.iter().map(|(_, _, request)| rows::on_crash_word(request.on_crash)).collect::<Vec<_>>())
}

/// Has the server grant what it can, and reads the rest.
async fn put(
    session: &mut Session,
    statements: &Statements,
    leads: &[Asking<'_>],
) -> Result<Vec<Result<Known, Unreadable>>, Failure> {
    let query = with_grants(statement(&statements.claim), leads)
        .bind(
            leads
                .iter()
                .map(|(_, _, request)| request.max_attempts.map(|most| i64::from(most.get())))
                .collect::<Vec<_>>(),
        )
        .bind(leads.iter().map(|(_, _, request)| request.recovers).collect::<Vec<_>>())
        .bind(leads.iter().map(|(_, key, _)| statements.lock_number(key)).collect::<Vec<_>>());
    let found = session.fetch_all(query).await?;
    // In the order of the batch: the statement gives what it read before what it wrote.
    let mut known: Vec<Result<Known, Unreadable>> = leads.iter().map(|_| Err(Unreadable("key"))).collect();
    for row in &found {
        take(row, leads, &mut known).map_err(Unreadable::failure)?;
    }
    Ok(known)
}

/// Adds to what is known what one row of the statement says.
fn take(
    row: &PgRow,
    leads: &[Asking<'_>],
    known: &mut [Result<Known, Unreadable>],
) -> Result<(), Unreadable> {
    match column::<i32>(row, 0, "kind")? {
        0 => {
            let (place, now) = (number_of(row, 1)?, now_of(row, 2)?);
            let large = column::<Option<bool>>(row, LARGE, "large")? == Some(true);
            let record = match column::<bool>(row, 5, "found")? {
                true if !large => rows::read(row, RECORD).map(Some),
                _ => Ok(None),
            };
            let in_transaction = column::<Option<bool>>(row, FREE, "free")? == Some(false);
            if let Some(known) = known.get_mut(place) {
                *known = record.map(|record| Known { record, now, granted: None, in_transaction, large });
            }
        }
        1 => {
            let inserted = (column::<&[u8]>(row, 3, "scope")?, column::<&[u8]>(row, 4, "key")?);
            let fence = Fence::new(rows::unsigned(row, RECORD + 2, "fence")?);
            let place = leads.binary_search_by(|(_, key, _)| name(key).cmp(&inserted));
            if let Ok(place) = place
                && let Ok(known) = &mut known[place]
            {
                let step = protocol::claim(None, Fence::default(), leads[place].2, known.now);
                known.record = step.write.map(|record| record.with_fence(fence));
                let granted = |record| protocol::granted(record, leads[place].2, known.now);
                known.granted = known.record.as_ref().map(granted);
            }
        }
        _ => {
            let place = number_of(row, 1)?;
            let record = rows::read(row, RECORD);
            if let Some(slot) = known.get_mut(place)
                && let Ok(known) = slot
            {
                match record {
                    Ok(record) => {
                        known.granted = Some(protocol::granted(&record, leads[place].2, known.now));
                        known.record = Some(record);
                        known.large = false;
                    }
                    Err(unreadable) => *slot = Err(unreadable),
                }
            }
        }
    }
    Ok(())
}
