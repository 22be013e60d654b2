//! Renewals, steps and completions of many claims in one statement each.
//!
//! The protocol's own function decides about each request whose record the statement did not find in flight with the same owner.

use sqlx::postgres::PgRow;

use super::compare_and_swap::{ROUNDS, apply, each, names, number_of, read_all};
use super::rows;
use super::statements::Statements;
use crate::db::failure::{Failure, raced};
use crate::db::session::{Session, statement};
use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::protocol::{self, CompleteAnswer, RecordStep, RecordStepAnswer, RenewAnswer, Request};
use idem_store_kit::group_commit::{Answer, Answers, Op, Ticket, unanswered};
use idem_store_kit::step_bytes;

/// Requests with their places in the batch, always in the same order, so that two batches cannot deadlock.
fn sorted<'t, R>(
    tickets: &'t [Ticket],
    request: impl Fn(&'t Request) -> Option<&'t R>,
) -> Vec<(usize, &'t RecordKey, &'t R)> {
    let asked = tickets.iter().enumerate();
    let mut asked: Vec<_> = asked
        .filter_map(|(place, ticket)| match &ticket.operation.op {
            Op::Apply(asked) => Some((place, &ticket.operation.key, request(asked)?)),
            _ => None,
        })
        .collect();
    asked.sort_by_key(|(_, key, _)| (key.scope().as_str(), key.key().as_str()));
    asked
}

/// Answers renewals. No key occurs twice.
pub(super) async fn renew(
    session: &mut Session,
    statements: &Statements,
    tickets: &[Ticket],
) -> Result<Answers, Failure> {
    let asked = sorted(tickets, |asked| match asked {
        Request::Renew(request) => Some(request),
        _ => None,
    });
    let (scopes, keys) = names(asked.iter().map(|(_, key, _)| *key));
    let query = statement(&statements.renew)
        .bind(scopes)
        .bind(keys)
        .bind(each(&asked, |(_, _, request)| request.owner.as_bytes().as_slice()))
        .bind(each(&asked, |(_, _, request)| rows::integer(request.fence.get())))
        .bind(each(&asked, |(_, _, request)| rows::micros(request.lease)));
    let given = session.fetch_all(query).await?;
    let done = done(tickets.len(), &given, asked.iter().map(|(place, ..)| *place));
    rest(session, statements, tickets, &done, RenewAnswer::Held).await
}

/// Answers steps. No key occurs twice. For a step that was not the next one, the present row decides; if it has become the next
/// one meanwhile, the statement is repeated.
pub(super) async fn record_step(
    session: &mut Session,
    statements: &Statements,
    tickets: &[Ticket],
) -> Result<Answers, Failure> {
    let asked = sorted(tickets, |asked| match asked {
        Request::RecordStep(request) => Some(request),
        _ => None,
    });
    let mut answers: Vec<Option<Result<Answer, StoreError>>> = tickets.iter().map(|_| None).collect();
    for _ in 0..ROUNDS {
        let open: Vec<_> = asked.iter().filter(|(place, ..)| answers[*place].is_none()).collect();
        if open.is_empty() {
            break;
        }
        for place in append(session, statements, &open).await? {
            answers[place] = Some(Ok(Answer::Applied(RecordStepAnswer::Recorded.into())));
        }
        let left: Vec<_> = open.into_iter().filter(|(place, ..)| answers[*place].is_none()).collect();
        if left.is_empty() {
            break;
        }
        let keys: Vec<&RecordKey> = left.iter().map(|(_, key, _)| *key).collect();
        let found = read_all(session, statements, &keys).await?;
        for ((place, key, request), found) in left.into_iter().zip(found) {
            answers[*place] = match found {
                Ok((record, now)) => {
                    let step = protocol::record_step(record.as_ref(), request, now);
                    step.write.is_none().then_some(Ok(Answer::Applied(step.answer.into())))
                }
                Err(unreadable) => Some(Err(unreadable.error(key))),
            };
        }
    }
    Ok(answers.into_iter().map(|answer| answer.or_else(|| Some(Err(raced())))).collect())
}

/// Appends each step that is its record's next. Returns which were, by their places in the batch.
async fn append(
    session: &mut Session,
    statements: &Statements,
    asked: &[&(usize, &RecordKey, &RecordStep)],
) -> Result<Vec<usize>, Failure> {
    let (scopes, keys) = names(asked.iter().map(|(_, key, _)| *key));
    let query = statement(&statements.record_step)
        .bind(scopes)
        .bind(keys)
        .bind(each(asked, |(_, _, request)| request.owner.as_bytes().as_slice()))
        .bind(each(asked, |(_, _, request)| rows::integer(request.fence.get())))
        .bind(each(asked, |(_, _, request)| i64::from(request.position)))
        .bind(each(asked, |(_, _, request)| step_bytes::encode(&request.step)));
    let given = session.fetch_all(query).await?;
    let numbers = given.iter().filter_map(|row| number_of(row, 0).ok());
    Ok(numbers.filter_map(|number| asked.get(number).map(|(place, ..)| *place)).collect())
}

/// Answers completions. No key occurs twice.
pub(super) async fn complete(
    session: &mut Session,
    statements: &Statements,
    tickets: &[Ticket],
) -> Result<Answers, Failure> {
    let asked = sorted(tickets, |asked| match asked {
        Request::Complete(request) => Some(request),
        _ => None,
    });
    let (scopes, keys) = names(asked.iter().map(|(_, key, _)| *key));
    let results = asked.iter().map(|(_, _, request)| rows::result_columns(Some(&request.result)));
    let (tombstones, bytes): (Vec<_>, Vec<_>) = results.unzip();
    let query = statement(&statements.complete)
        .bind(scopes)
        .bind(keys)
        .bind(each(&asked, |(_, _, request)| request.owner.as_bytes().as_slice()))
        .bind(each(&asked, |(_, _, request)| rows::integer(request.fence.get())))
        .bind(each(&asked, |(_, _, request)| rows::verdict(request.verdict)))
        .bind(tombstones)
        .bind(bytes)
        .bind(each(&asked, |(_, _, request)| rows::micros(request.ttl)));
    let given = session.fetch_all(query).await?;
    let done = done(tickets.len(), &given, asked.iter().map(|(place, ..)| *place));
    rest(session, statements, tickets, &done, CompleteAnswer::Done).await
}

/// Which operations of a batch the rows of a statement are about. The statement's order is that of `places`.
fn done(count: usize, given: &[PgRow], places: impl Iterator<Item = usize>) -> Vec<bool> {
    let places: Vec<usize> = places.collect();
    let mut done = vec![false; count];
    for row in given {
        if let Some(&place) = number_of(row, 0).ok().and_then(|number| places.get(number)) {
            done[place] = true;
        }
    }
    done
}

/// Answers the requests that were done, and decides about the rest.
async fn rest(
    session: &mut Session,
    statements: &Statements,
    tickets: &[Ticket],
    done: &[bool],
    answer: impl Into<protocol::Answer> + Copy,
) -> Result<Answers, Failure> {
    let left: Vec<&Ticket> =
        tickets.iter().zip(done).filter(|(_, done)| !**done).map(|(ticket, _)| ticket).collect();
    let settled = if left.is_empty() { Vec::new() } else { apply(session, statements, &left).await? };
    let mut settled = settled.into_iter();
    Ok(done
        .iter()
        .map(|done| {
            if *done {
                Some(Ok(Answer::Applied(answer.into())))
            } else {
                settled.next().unwrap_or_else(|| Some(Err(unanswered())))
            }
        })
        .collect())
}
