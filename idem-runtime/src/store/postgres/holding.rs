//! Renewals and completions of many claims in one statement each.
//!
//! What the statement did not find in flight and the asker's is judged by the protocol's own function.

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Executor as _};

use super::failure::{self, Failure};
use super::judged::{names, number_of, settle};
use super::queue::{Answer, Op, Ticket};
use super::rows;
use super::statements::Statements;
use super::worker::Answers;
use crate::error::StoreError;
use crate::key::RecordKey;
use crate::protocol::{Complete, CompleteAnswer, Renew, RenewAnswer};

/// Requests with their places in the batch, in one order everywhere, so that no two batches wait for
/// each other.
fn sorted<'t, R>(
    tickets: &'t [Ticket],
    request: impl Fn(&'t Op) -> Option<&'t R>,
) -> Vec<(usize, &'t RecordKey, &'t R)> {
    let asked = tickets.iter().enumerate();
    let mut asked: Vec<_> = asked
        .filter_map(|(place, ticket)| Some((place, &ticket.asked.key, request(&ticket.asked.op)?)))
        .collect();
    asked.sort_by_key(|(_, key, _)| (key.scope().as_str(), key.key().as_str()));
    asked
}

/// Answers renewals, no key twice among them.
pub(super) async fn renew(
    connection: &mut PgConnection,
    statements: &Statements,
    tickets: &[Ticket],
) -> Result<Answers, Failure> {
    let asked = sorted(tickets, |op| match op {
        Op::Renew(request) => Some(request),
        _ => None,
    });
    let (scopes, keys) = names(asked.iter().map(|(_, key, _)| *key));
    let query = sqlx::query(AssertSqlSafe(statements.renew.clone()))
        .bind(scopes)
        .bind(keys)
        .bind(asked.iter().map(|(_, _, Renew { owner, .. })| owner.as_bytes().as_slice()).collect::<Vec<_>>())
        .bind(asked.iter().map(|(_, _, Renew { fence, .. })| rows::integer(fence.get())).collect::<Vec<_>>())
        .bind(asked.iter().map(|(_, _, Renew { lease, .. })| rows::micros(*lease)).collect::<Vec<_>>());
    let given = connection.fetch_all(query).await.map_err(|error| failure::of_statement(&error))?;
    let done = done(tickets.len(), &given, asked.iter().map(|(place, ..)| *place));
    rest(connection, statements, tickets, &done, || Answer::Renew(RenewAnswer::Held)).await
}

/// Answers completions, no key twice among them.
pub(super) async fn complete(
    connection: &mut PgConnection,
    statements: &Statements,
    tickets: &[Ticket],
) -> Result<Answers, Failure> {
    let asked = sorted(tickets, |op| match op {
        Op::Complete(request) => Some(request),
        _ => None,
    });
    let (scopes, keys) = names(asked.iter().map(|(_, key, _)| *key));
    let results = asked.iter().map(|(_, _, request)| rows::result_columns(Some(&request.result)));
    let (tombstones, bytes): (Vec<_>, Vec<_>) = results.unzip();
    let query = sqlx::query(AssertSqlSafe(statements.complete.clone()))
        .bind(scopes)
        .bind(keys)
        .bind(
            asked
                .iter()
                .map(|(_, _, Complete { owner, .. })| owner.as_bytes().as_slice())
                .collect::<Vec<_>>(),
        )
        .bind(
            asked.iter().map(|(_, _, Complete { fence, .. })| rows::integer(fence.get())).collect::<Vec<_>>(),
        )
        .bind(asked.iter().map(|(_, _, request)| rows::verdict_word(request.verdict)).collect::<Vec<_>>())
        .bind(tombstones)
        .bind(bytes)
        .bind(asked.iter().map(|(_, _, Complete { ttl, .. })| rows::micros(*ttl)).collect::<Vec<_>>());
    let given = connection.fetch_all(query).await.map_err(|error| failure::of_statement(&error))?;
    let done = done(tickets.len(), &given, asked.iter().map(|(place, ..)| *place));
    rest(connection, statements, tickets, &done, || Answer::Complete(CompleteAnswer::Done)).await
}

/// Which of a batch the rows of a statement speak of, whose order is that of `places`.
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

/// Answers what is done, and settles what is not.
async fn rest(
    connection: &mut PgConnection,
    statements: &Statements,
    tickets: &[Ticket],
    done: &[bool],
    answer: impl Fn() -> Answer,
) -> Result<Answers, Failure> {
    let left: Vec<&Ticket> =
        tickets.iter().zip(done).filter(|(_, done)| !**done).map(|(ticket, _)| ticket).collect();
    let settled = if left.is_empty() { Vec::new() } else { settle(connection, statements, &left).await? };
    let mut settled = settled.into_iter();
    let missing = || Err(StoreError::outcome_unknown("the server answered less than was asked"));
    Ok(done
        .iter()
        .map(|done| if *done { Ok(answer()) } else { settled.next().unwrap_or_else(missing) })
        .collect())
}
