//! Claims of many keys in one statement.
//!
//! The statement grants; what it left as it was is judged here, by the protocol's own function on the
//! row it read. Claims of one key are all answered from that row where they would write nothing.

use std::collections::BTreeMap;

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Executor as _};

use super::failure::{self, Failure};
use super::judged::{Swap, now_of, number_of, swap};
use super::queue::{Answer, Op, Ticket};
use super::rows::{self, Unreadable, column};
use super::statements::Statements;
use super::worker::Answers;
use crate::error::StoreError;
use crate::key::RecordKey;
use crate::protocol::{self, Claim, ClaimAnswer, Fence, Fingerprint, Grant, Record, Timestamp};

/// How often a claim is put again because another was faster.
const ROUNDS: usize = 8;

/// Where the columns of a record begin in the rows of the statement.
const RECORD: usize = 6;

/// A claim and its place in the batch.
type Asking<'t> = (usize, &'t RecordKey, &'t Claim);

/// What is known of one key after the statement.
struct Known {
    record: Option<Record>,
    now: Timestamp,
    granted: Option<Grant>,
}

/// Answers claims, in their order.
pub(super) async fn claim(
    connection: &mut PgConnection,
    statements: &Statements,
    tickets: &[Ticket],
) -> Result<Answers, Failure> {
    let mut answers: Vec<Option<Result<ClaimAnswer, StoreError>>> = tickets.iter().map(|_| None).collect();
    for _ in 0..ROUNDS {
        let open = tickets.iter().enumerate().filter(|(index, _)| answers[*index].is_none());
        let mut keys: BTreeMap<(&str, &str), Vec<Asking<'_>>> = BTreeMap::new();
        for (index, ticket) in open {
            if let Op::Claim(request) = &ticket.asked.op {
                let key = &ticket.asked.key;
                let name = (key.scope().as_str(), key.key().as_str());
                keys.entry(name).or_default().push((index, key, request));
            }
        }
        let groups: Vec<Vec<Asking<'_>>> = keys.into_values().collect();
        if groups.is_empty() {
            break;
        }
        round(connection, statements, &groups, &mut answers).await?;
    }
    Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(raced())).map(Answer::Claim)).collect())
}

pub(super) fn raced() -> StoreError {
    StoreError::unavailable("others changed the record each time it was looked at; try again")
}

/// Puts the first claim of each key, and answers what can be answered then.
async fn round(
    connection: &mut PgConnection,
    statements: &Statements,
    groups: &[Vec<Asking<'_>>],
    answers: &mut [Option<Result<ClaimAnswer, StoreError>>],
) -> Result<(), Failure> {
    let leads: Vec<Asking<'_>> = groups.iter().map(|group| group[0]).collect();
    let known = put(connection, statements, &leads).await?;
    let mut swaps = Vec::new();
    let mut swapped = Vec::new();
    for (group, known) in groups.iter().zip(known) {
        let Known { record, now, granted } = match known {
            Ok(known) => known,
            Err(unreadable) => {
                for (index, key, _) in group {
                    answers[*index] = Some(Err(failure::unreadable(key, unreadable)));
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
                // It is in doubt or exhausted by now. A grant was the statement's, and another was faster.
                (Some(new), Some(old)) if place == 0 && !matches!(step.answer, ClaimAnswer::Granted(_)) => {
                    swaps.push(Swap { key, old: old.clone(), new });
                    swapped.push((*index, step.answer));
                }
                (Some(_), _) => {}
            }
        }
    }
    let done = swap(connection, statements, &swaps).await?;
    for ((index, answer), done) in swapped.into_iter().zip(done) {
        if done {
            answers[index] = Some(Ok(answer));
        }
    }
    Ok(())
}

/// Has the server grant what it can, and reads the rest.
async fn put(
    connection: &mut PgConnection,
    statements: &Statements,
    leads: &[Asking<'_>],
) -> Result<Vec<Result<Known, Unreadable>>, Failure> {
    let each = |of: fn(&Claim) -> i64| leads.iter().map(|(_, _, request)| of(request)).collect::<Vec<i64>>();
    let prints = leads.iter().map(|(_, _, request)| {
        request.fingerprint.as_ref().map(|print| Fingerprint::as_bytes(print).as_slice())
    });
    let query = sqlx::query(AssertSqlSafe(statements.claim.clone()))
        .bind(leads.iter().map(|(_, key, _)| key.scope().as_str().as_bytes()).collect::<Vec<_>>())
        .bind(leads.iter().map(|(_, key, _)| key.key().as_str().as_bytes()).collect::<Vec<_>>())
        .bind(leads.iter().map(|(_, _, request)| request.owner.as_bytes().as_slice()).collect::<Vec<_>>())
        .bind(prints.collect::<Vec<Option<&[u8]>>>())
        .bind(each(|request| rows::micros(request.lease)))
        .bind(each(|request| rows::micros(request.ttl)))
        .bind(leads.iter().map(|(_, _, request)| rows::on_crash_word(request.on_crash)).collect::<Vec<_>>())
        .bind(
            leads
                .iter()
                .map(|(_, _, request)| request.max_attempts.map(|most| i64::from(most.get())))
                .collect::<Vec<_>>(),
        )
        .bind(leads.iter().map(|(_, _, request)| protocol::may_settle(request)).collect::<Vec<_>>());
    let found = connection.fetch_all(query).await.map_err(|error| failure::of_statement(&error))?;
    // In the order of the batch: the statement gives what it read before what it wrote.
    let mut known: Vec<Result<Known, Unreadable>> = leads.iter().map(|_| Err(Unreadable("key"))).collect();
    for row in &found {
        take(row, leads, &mut known).map_err(|Unreadable(column)| {
            Failure::Refused(StoreError::corrupt_record(format!(
                "the server gave a column {column} that is none"
            )))
        })?;
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
            let record = match column::<bool>(row, 5, "found")? {
                true => rows::read(row, RECORD).map(Some),
                false => Ok(None),
            };
            if let Some(known) = known.get_mut(place) {
                *known = record.map(|record| Known { record, now, granted: None });
            }
        }
        1 => {
            let name = (column::<&[u8]>(row, 3, "scope")?, column::<&[u8]>(row, 4, "key")?);
            let fence = Fence::new(rows::unsigned(row, RECORD + 2, "fence")?);
            let place = leads.binary_search_by(|(_, key, _)| {
                (key.scope().as_str().as_bytes(), key.key().as_str().as_bytes()).cmp(&name)
            });
            if let Ok(place) = place
                && let Ok(known) = &mut known[place]
            {
                let step = protocol::claim(None, Fence::default(), leads[place].2, known.now);
                known.record = step.write.map(|record| Record { fence, ..record });
                known.granted = known.record.as_ref().map(|record| grant(record, known.now));
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
                        known.granted = Some(grant(&record, known.now));
                        known.record = Some(record);
                    }
                    Err(unreadable) => *slot = Err(unreadable),
                }
            }
        }
    }
    Ok(())
}

fn grant(record: &Record, now: Timestamp) -> Grant {
    Grant {
        fence: record.fence,
        attempt: record.attempt,
        recovered: record.recovered,
        lease_left: record.lease_until.since(now),
    }
}
