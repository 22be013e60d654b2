//! One worker: a connection of its own, and what it does with a batch.

use std::sync::Arc;

use sqlx::Connection as _;
use sqlx::postgres::PgConnection;
use tokio::time::{Instant, timeout};

use super::failure::{self, Failure};
use super::queue::{Answer, Batch, Kind, Queue, Ticket};
use super::session::Opening;
use super::statements::Statements;
use super::{claims, holding, judged, single};
use crate::error::StoreError;

/// What a worker needs to know.
#[derive(Debug)]
pub(super) struct Setting {
    pub(super) opening: Opening,
    pub(super) statements: Arc<Statements>,
    /// How many of them there may be in one runtime.
    pub(super) connections: usize,
}

/// The answers to a batch, in its order.
pub(super) type Answers = Vec<Result<Answer, StoreError>>;

/// Works until there is nothing to do for long.
pub(super) async fn work(queue: &Arc<Queue>, setting: &Setting) {
    let mut connection = None;
    let mut busy = false;
    while let Some(batch) = queue.next(busy).await {
        busy = batch.tickets.len() > 1;
        together(setting, &mut connection, batch).await;
    }
    if let Some(connection) = connection {
        // The server is told, so that it need not find out; it may be gone itself.
        let _ = timeout(setting.opening.time(), PgConnection::close(connection)).await;
    }
}

/// Does a batch in one go. Where the server refuses it, each operation on its own, so that an error is
/// its own operation's alone.
async fn together(setting: &Setting, connection: &mut Option<PgConnection>, batch: Batch) {
    let Batch { kind, tickets, mut travel } = batch;
    let done = travel.during(attempt(setting, connection, kind, &tickets)).await;
    match done {
        Ok(answers) => {
            for (ticket, answer) in tickets.into_iter().zip(answers) {
                ticket.answer(answer);
            }
        }
        Err(Failure::Refused(_)) if tickets.len() > 1 => {
            for ticket in tickets {
                travel.during(alone(setting, connection, kind, ticket)).await;
            }
        }
        Err(failure) => {
            let error = failure.error();
            for ticket in tickets {
                ticket.answer(Err(error.clone()));
            }
        }
    }
    travel.back();
}

async fn alone(setting: &Setting, connection: &mut Option<PgConnection>, kind: Kind, ticket: Ticket) {
    if ticket.deadline <= Instant::now() {
        // A statement before the one that was refused may have done it.
        let error = StoreError::outcome_unknown("others that the server refused took up its time");
        return ticket.answer(Err(error));
    }
    let answer = match attempt(setting, connection, kind, std::slice::from_ref(&ticket)).await {
        Ok(answers) => answers.into_iter().next().unwrap_or_else(|| Err(unanswered())),
        Err(failure) => Err(failure.error()),
    };
    ticket.answer(answer);
}

fn unanswered() -> StoreError {
    StoreError::outcome_unknown("the server answered less than was asked")
}

/// Has the server do it, within the time one statement has.
async fn attempt(
    setting: &Setting,
    connection: &mut Option<PgConnection>,
    kind: Kind,
    tickets: &[Ticket],
) -> Result<Answers, Failure> {
    let mut open = match connection.take() {
        Some(open) => open,
        None => match setting.opening.open().await {
            Ok(open) => open,
            // Nobody else would be let in either: all are told.
            Err(error) => return Err(Failure::Broken(error)),
        },
    };
    let time = setting.opening.time();
    let done = timeout(time, carry_out(&mut open, &setting.statements, kind, tickets))
        .await
        .unwrap_or_else(|_| Err(failure::late(time)));
    // One that is broken, or in the middle of a statement, is dropped.
    if !matches!(done, Err(Failure::Broken(_))) {
        *connection = Some(open);
    }
    let answers = done?;
    if answers.len() == tickets.len() { Ok(answers) } else { Err(Failure::Refused(unanswered())) }
}

async fn carry_out(
    connection: &mut PgConnection,
    statements: &Statements,
    kind: Kind,
    tickets: &[Ticket],
) -> Result<Answers, Failure> {
    match kind {
        Kind::Claims => claims::claim(connection, statements, tickets).await,
        Kind::Renewals => holding::renew(connection, statements, tickets).await,
        Kind::Recordings => holding::record_step(connection, statements, tickets).await,
        Kind::Completions => holding::complete(connection, statements, tickets).await,
        Kind::Judged => judged::settle(connection, statements, &tickets.iter().collect::<Vec<_>>()).await,
        Kind::Reads => judged::get(connection, statements, tickets).await,
        Kind::Single => match tickets {
            [ticket] => single::forget(connection, statements, &ticket.asked.key).await,
            _ => Ok(Vec::new()),
        },
    }
}
