//! One worker: a connection of its own, and what it does with a batch.

use std::sync::Arc;

use tokio::time::{Instant, timeout};

use super::{Batch, Queue};
use crate::db::connector::Connector;
use crate::db::failure::{self, Failure};
use crate::db::session::Session;
use crate::operation::{Answers, Kind, Ticket, unanswered};
use crate::statements::Statements;
use crate::{claims, compare_and_swap, deletion, held_claims};
use idem_core::StoreError;

/// The settings of a store that its workers use.
pub(crate) struct Setting {
    pub(crate) connector: Connector,
    pub(crate) statements: Arc<Statements>,
    /// The limit of workers, each with a connection, per runtime.
    pub(crate) connections: usize,
}

/// Runs batches until there is no more work.
pub(super) async fn work(queue: &Arc<Queue>, setting: &Setting) {
    let mut session = None;
    let mut busy = false;
    while let Some(batch) = queue.next(busy).await {
        busy = batch.tickets.len() > 1;
        together(setting, &mut session, batch).await;
    }
    if let Some(session) = session {
        session.close(setting.connector.timeout()).await;
    }
}

/// Runs a batch in one statement. If the server refuses it, runs each operation alone, so that an error hits only its
/// own operation.
async fn together(setting: &Setting, session: &mut Option<Session>, batch: Batch) {
    let Batch { kind, mut tickets, mut travel } = batch;
    while !tickets.is_empty() {
        let done = travel.during(attempt(setting, session, kind, &tickets)).await;
        match done {
            Ok(answers) => tickets = settle(tickets, answers),
            Err(Failure::Refused(_)) if tickets.len() > 1 => {
                for ticket in std::mem::take(&mut tickets) {
                    travel.during(alone(setting, session, kind, ticket)).await;
                }
            }
            Err(failure) => {
                let error = failure.error();
                for ticket in std::mem::take(&mut tickets) {
                    ticket.answer(Err(error.clone()));
                }
            }
        }
    }
    travel.back();
}

/// Sends the answers, and returns the tickets that must be repeated.
fn settle(tickets: Vec<Ticket>, answers: Answers) -> Vec<Ticket> {
    let now = Instant::now();
    let mut left = Vec::new();
    for (ticket, answer) in tickets.into_iter().zip(answers) {
        match answer {
            Some(answer) => ticket.answer(answer),
            None if ticket.deadline <= now => ticket.answer(Err(StoreError::unavailable(
                "others' large results took up the time; allow more with `operation_timeout`",
            ))),
            None => left.push(ticket),
        }
    }
    left
}

async fn alone(setting: &Setting, session: &mut Option<Session>, kind: Kind, ticket: Ticket) {
    if ticket.deadline <= Instant::now() {
        // A statement before the refused one may have done it.
        let error = StoreError::outcome_unknown("others that the server refused took up its time");
        return ticket.answer(Err(error));
    }
    let answer = match attempt(setting, session, kind, std::slice::from_ref(&ticket)).await {
        Ok(answers) => answers.into_iter().next().flatten().unwrap_or_else(|| Err(unanswered())),
        Err(failure) => Err(failure.error()),
    };
    ticket.answer(answer);
}

/// Runs a batch once, within the time of one statement.
async fn attempt(
    setting: &Setting,
    session: &mut Option<Session>,
    kind: Kind,
    tickets: &[Ticket],
) -> Result<Answers, Failure> {
    // Another worker may have left the server of this session since: a replica may lack what this process has written.
    let open = match session.take() {
        Some(open) => setting.connector.kept(open).await,
        None => None,
    };
    let mut open = match open {
        Some(open) => open,
        None => match setting.connector.connect().await {
            Ok(open) => open,
            // The other operations of the batch could not connect either, so all of them get this error.
            Err(error) => return Err(Failure::Broken(error)),
        },
    };
    let time = setting.connector.timeout();
    let done = timeout(time, carry_out(&mut open, &setting.statements, kind, tickets))
        .await
        .unwrap_or_else(|_| Err(failure::late(time)));
    *session = setting.connector.kept(open).await;
    let answers = done?;
    if answers.len() == tickets.len() { Ok(answers) } else { Err(Failure::Refused(unanswered())) }
}

async fn carry_out(
    session: &mut Session,
    statements: &Statements,
    kind: Kind,
    tickets: &[Ticket],
) -> Result<Answers, Failure> {
    match kind {
        Kind::Claims => claims::claim(session, statements, tickets).await,
        Kind::Renewals => held_claims::renew(session, statements, tickets).await,
        Kind::Recordings => held_claims::record_step(session, statements, tickets).await,
        Kind::Completions => held_claims::complete(session, statements, tickets).await,
        Kind::CompareAndSwap => {
            compare_and_swap::apply(session, statements, &tickets.iter().collect::<Vec<_>>()).await
        }
        Kind::Reads => compare_and_swap::get(session, statements, tickets).await,
        Kind::Single => match tickets {
            [ticket] => deletion::forget(session, statements, &ticket.asked.key).await,
            _ => Ok(Vec::new()),
        },
    }
}
