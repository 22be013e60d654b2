//! Reads rows, decides by the protocol's functions, and writes the new record if the row has not changed
//! meanwhile.

use std::collections::HashMap;

use sqlx::postgres::PgRow;

use super::rows;
use super::statements::Statements;
use crate::db::failure::{Failure, raced};
use crate::db::session::{Session, statement};
use idem_core::RecordKey;
use idem_core::protocol::{self, Fence, Record, Timestamp, Transition};
use idem_store_kit::columns::Unreadable;
use idem_store_kit::group_commit::{Answer, Answers, Op, Ticket, unanswered};
use idem_store_kit::sql::name;

/// How often an operation is tried when others change its record meanwhile.
pub(super) const ROUNDS: usize = 8;

/// A record that replaces another.
pub(super) struct Swap<'k> {
    pub(super) key: &'k RecordKey,
    pub(super) old: Record,
    pub(super) new: Record,
    /// The key's number among the server's advisory locks, if it needs its lock.
    pub(super) lock: Option<i64>,
}

/// What became of a [`Swap`].
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Swapped {
    Written,
    /// The record is another by now.
    Changed,
    /// A transaction of a caller's has the key.
    Held,
}

/// The record in a row, and the time when it was read.
pub(super) type Found = Result<(Option<Record>, Timestamp), Unreadable>;

/// The place in the batch that a row is about.
pub(super) fn number_of(row: &PgRow, index: usize) -> Result<usize, Unreadable> {
    let number = rows::unsigned(row, index, "n")?;
    usize::try_from(number).ok().and_then(|number| number.checked_sub(1)).ok_or(Unreadable("n"))
}

pub(super) fn now_of(row: &PgRow, index: usize) -> Result<Timestamp, Unreadable> {
    rows::unsigned(row, index, "now").map(Timestamp::from_micros)
}

/// The keys as two arrays.
pub(super) fn names<'k>(keys: impl Iterator<Item = &'k RecordKey>) -> (Vec<&'k [u8]>, Vec<&'k [u8]>) {
    keys.map(name).unzip()
}

/// A column of parameters: the value `of` each row.
pub(super) fn each<'r, R, T>(rows: &'r [R], of: impl Fn(&'r R) -> T) -> Vec<T> {
    rows.iter().map(of).collect()
}

/// Reads the records of all these keys.
pub(super) async fn read_all(
    session: &mut Session,
    statements: &Statements,
    keys: &[&RecordKey],
) -> Result<Vec<Found>, Failure> {
    let mut found: Vec<Option<Found>> = keys.iter().map(|_| None).collect();
    loop {
        let open: Vec<usize> = (0..keys.len()).filter(|&place| found[place].is_none()).collect();
        if open.is_empty() {
            return Ok(found.into_iter().flatten().collect());
        }
        let asked: Vec<&RecordKey> = open.iter().map(|&place| keys[place]).collect();
        let mut progress = false;
        for (place, read) in open.into_iter().zip(read(session, statements, &asked).await?) {
            progress |= read.is_some();
            found[place] = read;
        }
        if !progress {
            return Err(Failure::Refused(unanswered()));
        }
    }
}

/// Reads the records of as many of these keys as one statement may: the first, and those of the others that are small.
pub(super) async fn read(
    session: &mut Session,
    statements: &Statements,
    keys: &[&RecordKey],
) -> Result<Vec<Option<Found>>, Failure> {
    let (scopes, texts) = names(keys.iter().copied());
    let query = match (scopes.as_slice(), texts.as_slice()) {
        (&[scope], &[text]) => statement(&statements.read_one).bind(scope).bind(text),
        _ => statement(&statements.read).bind(scopes).bind(texts),
    };
    let given = session.fetch_all(query).await?;
    let mut found: Vec<Option<Found>> = keys.iter().map(|_| None).collect();
    for row in &given {
        let read = || {
            let record = match rows::column::<bool>(row, 2, "found")? {
                true => {
                    let steps = rows::steps(row, 3 + rows::COLUMNS.len())?;
                    Some(rows::read(row, 3)?.with_steps(steps))
                }
                false => None,
            };
            Ok((record, now_of(row, 1)?))
        };
        if let Ok(place) = number_of(row, 0)
            && let Some(slot) = found.get_mut(place)
        {
            *slot = Some(read());
        }
    }
    Ok(found)
}

/// Writes each new record if the old one is unchanged. The keys are always in their order, so that two batches cannot deadlock.
pub(super) async fn swap(
    session: &mut Session,
    statements: &Statements,
    swaps: &[Swap<'_>],
) -> Result<Vec<Swapped>, Failure> {
    let mut done = vec![Swapped::Changed; swaps.len()];
    if swaps.is_empty() {
        return Ok(done);
    }
    let (scopes, texts) = names(swaps.iter().map(|swap| swap.key));
    let ends = |record: &Record| record.expires_at.map(rows::instant);
    let results = swaps.iter().map(|swap| rows::result_columns(swap.new.result.as_ref()));
    let (tombstones, bytes): (Vec<_>, Vec<_>) = results.unzip();
    let query = statement(&statements.swap)
        .bind(scopes)
        .bind(texts)
        .bind(each(swaps, |swap| rows::word(swap.old.state)))
        .bind(each(swaps, |swap| swap.old.owner.as_bytes().as_slice()))
        .bind(each(swaps, |swap| rows::integer(swap.old.fence.get())))
        .bind(each(swaps, |swap| rows::instant(swap.old.lease_until)))
        .bind(each(swaps, |swap| ends(&swap.old)))
        .bind(each(swaps, |swap| rows::word(swap.new.state)))
        .bind(each(swaps, |swap| swap.new.owner.as_bytes().as_slice()))
        .bind(each(swaps, |swap| rows::integer(swap.new.fence.get())))
        .bind(each(swaps, |swap| i64::from(swap.new.attempt)))
        .bind(each(swaps, |swap| swap.new.recovered))
        .bind(each(swaps, |swap| rows::word(swap.new.on_crash)))
        .bind(each(swaps, |swap| rows::instant(swap.new.lease_until)))
        .bind(each(swaps, |swap| rows::instant(swap.new.retry_at)))
        .bind(each(swaps, |swap| rows::micros(swap.new.ttl)))
        .bind(each(swaps, |swap| rows::fingerprint(swap.new.fingerprint.as_ref())))
        .bind(tombstones)
        .bind(each(swaps, |swap| rows::instant(swap.new.created_at)))
        .bind(each(swaps, |swap| swap.new.completed_at.map(rows::instant)))
        .bind(each(swaps, |swap| ends(&swap.new)))
        .bind(bytes)
        .bind(each(swaps, |swap| swap.lock));
    let given = session.fetch_all(query).await?;
    for row in &given {
        if let Ok(place) = number_of(row, 0)
            && let Some(done) = done.get_mut(place)
            && let Ok(written) = rows::column::<bool>(row, 1, "written")
        {
            *done = if written { Swapped::Written } else { Swapped::Held };
        }
    }
    Ok(done)
}

/// Answers operations by reading, deciding and writing. No key occurs twice.
pub(super) async fn apply(
    session: &mut Session,
    statements: &Statements,
    tickets: &[&Ticket],
) -> Result<Answers, Failure> {
    let mut answers: Answers = tickets.iter().map(|_| None).collect();
    for _ in 0..ROUNDS {
        let mut open: Vec<usize> = (0..tickets.len()).filter(|&place| answers[place].is_none()).collect();
        if open.is_empty() {
            break;
        }
        open.sort_by_key(|&place| name(&tickets[place].operation.key));
        let keys: Vec<_> = open.iter().map(|&place| &tickets[place].operation.key).collect();
        let found = read_all(session, statements, &keys).await?;
        let (mut swaps, mut swapped) = (Vec::new(), Vec::new());
        for (place, found) in open.into_iter().zip(found) {
            let asked = &tickets[place].operation;
            let (record, now) = match found {
                Ok(found) => found,
                Err(unreadable) => {
                    answers[place] = Some(Err(unreadable.error(&asked.key)));
                    continue;
                }
            };
            let Op::Apply(request) = &asked.op else { continue };
            let Transition { write, answer, .. } =
                protocol::apply(record.as_ref(), Fence::default(), request, now);
            let answer = Answer::Applied(answer);
            match (write, record) {
                (None, _) => answers[place] = Some(Ok(answer)),
                (Some(new), Some(old)) => {
                    swaps.push(Swap { key: &asked.key, old, new, lock: None });
                    swapped.push((place, answer));
                }
                // Only a claim writes where there is no record.
                (Some(_), None) => {}
            }
        }
        let done = swap(session, statements, &swaps).await?;
        for ((place, answer), done) in swapped.into_iter().zip(done) {
            if done == Swapped::Written {
                answers[place] = Some(Ok(answer));
            }
        }
    }
    Ok(answers.into_iter().map(|answer| answer.or_else(|| Some(Err(raced())))).collect())
}

/// Answers reads.
pub(super) async fn get(
    session: &mut Session,
    statements: &Statements,
    tickets: &[Ticket],
) -> Result<Answers, Failure> {
    let mut keys: Vec<_> = tickets.iter().map(|ticket| &ticket.operation.key).collect();
    keys.sort_by_key(|key| name(key));
    keys.dedup();
    let records = read(session, statements, &keys).await?;
    let records: HashMap<_, _> = keys.into_iter().zip(records).collect();
    let answers = tickets.iter().map(|ticket| match records.get(&ticket.operation.key)?.clone()? {
        Ok((record, now)) => {
            let live = record.filter(|record| protocol::is_live(record, now));
            Some(Ok(Answer::Found(live.map(Box::new))))
        }
        Err(unreadable) => Some(Err(unreadable.error(&ticket.operation.key))),
    });
    Ok(answers.collect())
}
