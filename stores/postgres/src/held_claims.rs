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
use idem_core::protocol::{self, CompleteAnswer, RecordStep, RecordStepAnswer, RenewAnswer, Request};
use idem_store_kit::group_commit::{Answer, Answers, Op, Ticket};
use idem_store_kit::sql::name;
use idem_store_kit::step_bytes;

/// A request, its key and its place in the batch.
type Asked<'t, R> = (usize, &'t RecordKey, &'t R);

/// Requests, always in the same order, so that two batches cannot deadlock.
fn sorted<'t, R>(tickets: &'t [Ticket], request: impl Fn(&'t Request) -> Option<&'t R>) -> Vec<Asked<'t, R>> {
    let asked = tickets.iter().enumerate();
    let mut asked: Vec<_> = asked
        .filter_map(|(place, ticket)| match &ticket.operation.op {
            Op::Apply(asked) => Some((place, &ticket.operation.key, request(asked)?)),
            _ => None,
        })
        .collect();
    asked.sort_by_key(|(_, key, _)| name(key));
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
    settle(session, statements, tickets, &asked, &given, RenewAnswer::Held).await
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
    let mut answers: Answers = tickets.iter().map(|_| None).collect();
    for _ in 0..ROUNDS {
        let mut open = asked.clone();
        open.retain(|(place, ..)| answers[*place].is_none());
        if open.is_empty() {
            break;
        }
        for place in append(session, statements, &open).await? {
            answers[place] = Some(Ok(Answer::Applied(RecordStepAnswer::Recorded.into())));
        }
        open.retain(|(place, ..)| answers[*place].is_none());
        let keys: Vec<&RecordKey> = open.iter().map(|(_, key, _)| *key).collect();
        let found = read_all(session, statements, &keys).await?;
        for ((place, key, request), found) in open.into_iter().zip(found) {
            answers[place] = match found {
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
    asked: &[Asked<'_, RecordStep>],
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
    Ok(places(asked, &given))
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
    settle(session, statements, tickets, &asked, &given, CompleteAnswer::Done).await
}

/// The places in the batch of the requests whose numbers are in these rows.
fn places<R>(asked: &[Asked<'_, R>], given: &[PgRow]) -> Vec<usize> {
    let numbers = given.iter().filter_map(|row| number_of(row, 0).ok());
    numbers.filter_map(|number| asked.get(number).map(|(place, ..)| *place)).collect()
}

/// Answers the requests whose numbers are in these rows, and decides about the rest.
async fn settle<R>(
    session: &mut Session,
    statements: &Statements,
    tickets: &[Ticket],
    asked: &[Asked<'_, R>],
    given: &[PgRow],
    answer: impl Into<protocol::Answer> + Copy,
) -> Result<Answers, Failure> {
    let mut answers: Answers = tickets.iter().map(|_| None).collect();
    for place in places(asked, given) {
        answers[place] = Some(Ok(Answer::Applied(answer.into())));
    }
    let open: Vec<usize> = (0..tickets.len()).filter(|&place| answers[place].is_none()).collect();
    let unanswered: Vec<&Ticket> = open.iter().map(|&place| &tickets[place]).collect();
    let settled = apply(session, statements, &unanswered).await?;
    for (place, settled) in open.into_iter().zip(settled) {
        answers[place] = settled;
    }
    Ok(answers)
}
