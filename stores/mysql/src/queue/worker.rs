//! One worker: a connection of its own, and what it does with a batch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use super::{Batch, Queue};
use crate::backlog::Class;
use crate::change::{self, Why};
use crate::db::failure::{self, Failure};
use crate::db::session::Session;
use crate::operation::{Answer, Answers, Ticket};
use crate::reading;
use crate::setting::Setting;
use idem_core::StoreError;

/// How often a batch is tried when other transactions are in its way.
const ROUNDS: usize = 3;
/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(1);

/// Runs batches until there is no more work.
pub(super) async fn work(queue: &Arc<Queue>) {
    let setting = &queue.setting;
    let mut session = None;
    while let Some(Batch { class, tickets, travel }) = queue.next().await {
        together(setting, &mut session, class, tickets).await;
        drop(travel);
    }
    if let Some(session) = session {
        session.close(setting.connector.timeout).await;
    }
}

/// Runs a batch in one transaction. If others hold one of its rows locked, or the server refuses it, runs each operation
/// alone, so that a failure hits only its own operation.
async fn together(setting: &Setting, session: &mut Option<Session>, class: Class, mut tickets: Vec<Ticket>) {
    let mut round = 1;
    while !tickets.is_empty() {
        let failed = match attempt(setting, session, class, &tickets).await {
            Ok(answers) => {
                tickets = settle(tickets, answers);
                continue;
            }
            Err(failed) => failed,
        };
        if matches!(failed, Failure::Raced(_)) && round < ROUNDS {
            round += 1;
            sleep(PAUSE).await;
            continue;
        }
        return apart(setting, session, class, tickets, failed).await;
    }
}

/// Runs each operation of a failed batch alone.
async fn apart(
    setting: &Setting,
    session: &mut Option<Session>,
    class: Class,
    tickets: Vec<Ticket>,
    failed: Failure,
) {
    let is_alone = tickets.len() == 1;
    for ticket in tickets {
        match &failed {
            Failure::Broken(error) => ticket.answer(Err(error.clone())),
            failed if is_alone => settle_failed(setting, session, ticket, failed.clone()).await,
            _ => alone(setting, session, class, ticket).await,
        }
    }
}

async fn alone(setting: &Setting, session: &mut Option<Session>, class: Class, ticket: Ticket) {
    if ticket.deadline <= Instant::now() {
        return ticket.answer(Err(late_by_others()));
    }
    match attempt(setting, session, class, std::slice::from_ref(&ticket)).await {
        Ok(answers) => drop(settle(vec![ticket], answers)),
        Err(failed) => settle_failed(setting, session, ticket, failed).await,
    }
}

/// The error of an operation that was not begun because those before it took too long.
fn late_by_others() -> StoreError {
    StoreError::unavailable(
        "operations before this one took all its time; allow more with `operation_timeout`",
    )
}

/// Answers an operation that could not write, by a read without a lock where that is enough.
async fn settle_failed(setting: &Setting, session: &mut Option<Session>, ticket: Ticket, failed: Failure) {
    let (error, why) = match failed {
        Failure::Raced(_) => (failure::locked(), Why::Locked),
        Failure::ReadOnly(error) => (error, Why::ReadOnly),
        Failure::Refused(error) | Failure::Absent(error) | Failure::Broken(error) => {
            return ticket.answer(Err(error));
        }
    };
    let looked = look(setting, session, &ticket, why).await;
    ticket.answer(looked.ok().flatten().ok_or(error));
    if why == Why::ReadOnly
        && let Some(session) = session
    {
        session.leave();
    }
}

/// The answer to an operation by a read alone, if there is one.
async fn look(
    setting: &Setting,
    session: &mut Option<Session>,
    ticket: &Ticket,
    why: Why,
) -> Result<Option<Answer>, Failure> {
    let mut open = open(setting, session).await?;
    let looking = change::without_writing(&mut open, setting, &ticket.asked, why);
    let looked = in_time(setting, looking).await;
    *session = setting.connector.kept(open).await;
    looked
}

/// Sends the answers, and returns the tickets that must be repeated.
fn settle(tickets: Vec<Ticket>, answers: Answers) -> Vec<Ticket> {
    let now = Instant::now();
    let mut left = Vec::new();
    for (ticket, answer) in tickets.into_iter().zip(answers) {
        match answer {
            Some(answer) => ticket.answer(answer),
            None if ticket.deadline <= now => ticket.answer(Err(late_by_others())),
            None => left.push(Ticket { is_long: true, ..ticket }),
        }
    }
    left
}

/// Runs a batch once, within the operation timeout.
async fn attempt(
    setting: &Setting,
    session: &mut Option<Session>,
    class: Class,
    tickets: &[Ticket],
) -> Result<Answers, Failure> {
    let mut open = open(setting, session).await?;
    let done = match class {
        Class::Completions | Class::Changes => {
            in_time(setting, change::apply(&mut open, setting, tickets)).await
        }
        Class::Reads => {
            let asked: Vec<_> = tickets.iter().map(|ticket| &*ticket.asked).collect();
            in_time(setting, reading::get(&mut open, setting, &asked)).await
        }
    };
    *session = setting.connector.kept(open).await;
    done
}

async fn open(setting: &Setting, session: &mut Option<Session>) -> Result<Session, Failure> {
    match session.take() {
        Some(open) if open.is_usable() => Ok(open),
        // The other operations of the batch could not connect either, so all of them get this error.
        _ => setting.connector.connect().await.map_err(Failure::Broken),
    }
}

async fn in_time<T>(setting: &Setting, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let time = setting.connector.timeout;
    timeout(time, work).await.unwrap_or_else(|_| Err(failure::late(time)))
}
