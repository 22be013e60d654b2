//! Renewals, steps and completions. All requests of a batch share one statement.
//!
//! A statement changes a record only if the record still has the owner and the fence of the request. The
//! protocol's own functions decide about all other requests.

use std::sync::Arc;

use sqlx::postgres::PgRow;

use super::compare_and_swap::{Batch, ROUNDS, each, names, number_of};
use super::rows;
use super::statements::Statements;
use crate::db::failure::Failure;
use crate::db::session::{Session, Statement, statement};
use idem_core::RecordKey;
use idem_core::protocol::{self, CompleteAnswer, Fence, Owner, RecordStepAnswer, RenewAnswer, Request};
use idem_store_kit::group_commit::{Answers, Ticket};
use idem_store_kit::step_bytes;

/// The index of a request's group, the key, and the request.
type Asked<'t, R> = (usize, &'t RecordKey, &'t R);

/// The requests without an answer, at most one for each key.
fn open<'t, R>(batch: &Batch<'t>, request: impl Fn(&'t Request) -> Option<&'t R>) -> Vec<Asked<'t, R>> {
    let first = |place: usize| {
        let group = &batch.groups[place];
        Some((place, group.key, request(group.requests.first()?.1)?))
    };
    batch.open().into_iter().filter_map(first).collect()
}

/// Binds the first parameters of a statement: scope, key, owner and fence.
fn of_held<R>(text: &Arc<str>, asked: &[Asked<'_, R>], claim: impl Fn(&R) -> (&Owner, Fence)) -> Statement {
    let (scopes, keys) = names(asked.iter().map(|(_, key, _)| *key));
    statement(text)
        .bind(scopes)
        .bind(keys)
        .bind(each(asked, |(_, _, request)| claim(request).0.as_bytes().as_slice()))
        .bind(each(asked, |(_, _, request)| rows::integer(claim(request).1.get())))
}

/// Gives this answer to the requests whose positions in `asked` are in these rows.
fn answer_done<R>(
    batch: &mut Batch<'_>,
    asked: &[Asked<'_, R>],
    rows: &[PgRow],
    answer: impl Into<protocol::Answer> + Copy,
) {
    for number in rows.iter().filter_map(|row| number_of(row, 0).ok()) {
        if let Some((place, ..)) = asked.get(number) {
            batch.answer_first(*place, answer.into());
        }
    }
}

/// Answers renewals. No key occurs twice.
pub(super) async fn renew(
    session: &mut Session,
    statements: &Statements,
    tickets: &[Ticket],
) -> Result<Answers, Failure> {
    let mut batch = Batch::new(statements, tickets);
    let asked = open(&batch, |asked| match asked {
        Request::Renew(request) => Some(request),
        _ => None,
    });
    let query = of_held(&statements.renew, &asked, |request| (&request.owner, request.fence))
        .bind(each(&asked, |(_, _, request)| rows::micros(request.lease)));
    let rows = session.fetch_all(query).await?;
    answer_done(&mut batch, &asked, &rows, RenewAnswer::Held);
    batch.settle(session).await
}

/// Answers requests that record a step. No key occurs twice. If a step is not the next one of its record, the
/// statement does not write it. The record is then read to decide the answer. If this read shows that the
/// step is now the next one, the statement is repeated.
pub(super) async fn record_step(
    session: &mut Session,
    statements: &Statements,
    tickets: &[Ticket],
) -> Result<Answers, Failure> {
    let mut batch = Batch::new(statements, tickets);
    for _ in 0..ROUNDS {
        let asked = open(&batch, |asked| match asked {
            Request::RecordStep(request) => Some(request),
            _ => None,
        });
        if asked.is_empty() {
            break;
        }
        let query = of_held(&statements.record_step, &asked, |request| (&request.owner, request.fence))
            .bind(each(&asked, |(_, _, request)| i64::from(request.position)))
            .bind(each(&asked, |(_, _, request)| step_bytes::encode(&request.step)));
        let rows = session.fetch_all(query).await?;
        answer_done(&mut batch, &asked, &rows, RecordStepAnswer::Recorded);
        batch.replace(session, false, None).await?;
    }
    Ok(batch.end())
}

/// Answers completions. No key occurs twice.
pub(super) async fn complete(
    session: &mut Session,
    statements: &Statements,
    tickets: &[Ticket],
) -> Result<Answers, Failure> {
    let mut batch = Batch::new(statements, tickets);
    let asked = open(&batch, |asked| match asked {
        Request::Complete(request) => Some(request),
        _ => None,
    });
    let results = asked.iter().map(|(_, _, request)| rows::result_columns(Some(&request.result)));
    let (tombstones, bytes): (Vec<_>, Vec<_>) = results.unzip();
    let query = of_held(&statements.complete, &asked, |request| (&request.owner, request.fence))
        .bind(each(&asked, |(_, _, request)| rows::verdict(request.verdict)))
        .bind(tombstones)
        .bind(bytes)
        .bind(each(&asked, |(_, _, request)| rows::micros(request.ttl)));
    let rows = session.fetch_all(query).await?;
    answer_done(&mut batch, &asked, &rows, CompleteAnswer::Done);
    batch.settle(session).await
}
