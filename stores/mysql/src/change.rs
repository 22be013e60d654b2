//! Operations that change records. Each batch first tries the short way of `at_once`. If the short way
//! answers no operation, the batch takes the long way: one transaction locks the rows, decides by the
//! protocol's own functions, and writes.

pub(super) mod at_once;
mod entry;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use self::entry::Entry;
pub(super) use self::entry::read;
use super::reading::{self, Rest, clock};
use super::rows;
use super::setting::Setting;
use crate::db::failure::{Failure, Stage, locked};
use crate::db::session::{BEGINNING, COMMIT, Session};
use idem_core::protocol::{
    self, Claim, ClaimAnswer, Fence, Record, RecordStep, RecordedStep, Request, State, Timestamp,
};
use idem_core::{RecordKey, StoreError};
use idem_store_kit::group_commit::{Answer, Answers, Op, Operation, Seen, Ticket};
use idem_store_kit::sql::{HELD, Name, name};

/// Answers a batch. The answers have the order of the tickets. The changes of all answered operations are
/// committed.
pub(super) async fn apply(
    session: &mut Session,
    setting: &Setting,
    tickets: &[Ticket],
) -> Result<Answers, Failure> {
    let answers = at_once::run(session, setting, tickets).await?;
    if answers.iter().any(Option::is_some) {
        return Ok(answers);
    }
    let done = transact(session, setting, tickets).await;
    if done.is_err() {
        session.roll_back().await;
    }
    let mut answers = done?;
    let is_any_answered = answers.iter().any(Option::is_some);
    let mut rest = Rest::default();
    for (ticket, answer) in tickets.iter().zip(&mut answers).filter(|(_, answer)| answer.is_none()) {
        // The operation's answer is a large result, which was not read together with the record.
        match without_writing(session, setting, &mut rest, &ticket.operation, Why::Locked).await {
            Ok(judged) => *answer = judged,
            // The committed operations have their answers. The other operations are repeated.
            Err(_) if is_any_answered => {
                session.leave();
                break;
            }
            Err(failed) => return Err(failed),
        }
    }
    Ok(answers)
}

pub(super) type Judged = Option<Result<Answer, StoreError>>;

async fn transact(
    session: &mut Session,
    setting: &Setting,
    tickets: &[Ticket],
) -> Result<Vec<Judged>, Failure> {
    let statements = &setting.statements;
    let mut entries: BTreeMap<Name<'_>, Entry<'_>> = BTreeMap::new();
    for ticket in tickets {
        let key = &ticket.operation.key;
        entries.entry(name(key)).or_insert_with(|| Entry::absent(key));
    }
    let keys: Vec<&RecordKey> = entries.values().map(|entry| entry.key).collect();
    let response = session.run(statements.lock(keys.into_iter()), Stage::Open).await?;
    for row in response.rows(BEGINNING) {
        if let Some(entry) = entries.get_mut(&reading::name(row)?) {
            entry.set_row(row);
        }
    }
    let now = clock(&response, BEGINNING + 1, setting)?;
    let mut answers = Vec::with_capacity(tickets.len());
    for ticket in tickets {
        let Operation { key, op } = &*ticket.operation;
        answers.push(match entries.get_mut(&name(key)) {
            Some(entry) => {
                let there = step_there(session, setting, entry, op).await?;
                judge(entry, op, now, there)
            }
            None => Some(Err(locked())),
        });
    }
    let mut texts = entry::writes(statements, session.at_once(), entries.values());
    texts.push(COMMIT.to_owned());
    session.run(texts.join("; "), Stage::Committing).await?;
    Ok(answers)
}

/// If the operation records a step, returns the step that the record already has at this position. If the
/// operation is a repetition, its first try recorded this step.
async fn step_there(
    session: &mut Session,
    setting: &Setting,
    entry: &Entry<'_>,
    op: &Op,
) -> Result<Option<RecordedStep>, Failure> {
    let Op::Apply(Request::RecordStep(RecordStep { position, .. })) = op else { return Ok(None) };
    setting.stepped.put(setting.stepped.mark(entry.key));
    if usize::try_from(*position).map_or(true, |position| position >= entry.kept) {
        return Ok(None);
    }
    let response = session.run(setting.statements.step(entry.key, *position), Stage::Open).await?;
    Ok(response.rows(0).first().and_then(|row| rows::step(row, 0).ok()))
}

/// Applies one operation to the entry's record. Returns `None` if the answer is a result that was not read.
/// Also returns `None` for a read, but no batch of changes contains reads.
fn judge(entry: &mut Entry<'_>, op: &Op, now: Timestamp, there: Option<RecordedStep>) -> Judged {
    match op {
        Op::Forget => Some(Ok(Answer::Forgotten(entry.forget(now)))),
        Op::Get => None,
        Op::Look(request) => look(entry, request, now),
        Op::Apply(request) => {
            if let Err(error) = entry.prepare(request, there) {
                return Some(Err(error));
            }
            let transition = protocol::apply(entry.record.as_ref(), Fence::default(), request, now);
            if let Some(new) = transition.write {
                entry.write(new);
            } else if entry.is_large
                && matches!(transition.answer, protocol::Answer::Claim(ClaimAnswer::Replay(_)))
            {
                return None;
            }
            Some(Ok(Answer::Applied(transition.answer)))
        }
    }
}

/// The answer that a claim would get. Writes nothing, even if the decision is that the record is in doubt or
/// exhausted, because every later claim comes to the same decision.
fn look(entry: &mut Entry<'_>, request: &Claim, now: Timestamp) -> Judged {
    if let Err(error) = entry.check() {
        return Some(Err(error));
    }
    let transition = protocol::claim(entry.record.as_ref(), Fence::default(), request, now);
    Some(Ok(match (transition.write, transition.answer) {
        (Some(new), ClaimAnswer::Granted(grant)) => {
            let old = entry.record.clone();
            Answer::Seen(Box::new(Seen { old, new, grant, now }))
        }
        (None, ClaimAnswer::Replay(_)) if entry.is_large => return None,
        (_, answer) => Answer::Applied(answer.into()),
    }))
}

/// Why an operation must not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Another transaction has the record locked.
    Locked,
    /// The server takes no writes. It may be a replica that lags behind. So only a recorded result is a valid
    /// answer, because a result does not change.
    ReadOnly,
}

/// Answers a claim by a read without a lock: see [`unwritten`]. Also returns `None` if the operation is not a
/// claim, or if `rest` may read no more.
pub(super) async fn without_writing<'t>(
    session: &mut Session,
    setting: &Setting,
    rest: &mut Rest<'t>,
    operation: &'t Operation,
    why: Why,
) -> Result<Judged, Failure> {
    let (Op::Apply(Request::Claim(request)) | Op::Look(request)) = &operation.op else { return Ok(None) };
    Ok(match rest.read(session, setting, &operation.key).await? {
        Some(Ok(whole)) => unwritten(setting, request, whole, why).map(Ok),
        Some(Err(unreadable)) => Some(Err(unreadable.error(&operation.key))),
        None => None,
    })
}

/// The answer to a claim that must not write. `None` if the record alone does not give the answer. If the
/// claim could take a locked record and callers use transactions, the answer says that the transaction of a
/// caller holds the record.
fn unwritten(
    setting: &Setting,
    request: &Claim,
    (record, now): (Option<Record>, Timestamp),
    why: Why,
) -> Option<Answer> {
    let state = record.as_ref().map(|record| record.state);
    let is_done = matches!(state, Some(State::Completed | State::Failed));
    let transition = protocol::claim(record.as_ref(), Fence::default(), request, now);
    let answer = match transition.write {
        None if is_done || why == Why::Locked => transition.answer,
        Some(_) if why == Why::Locked && setting.has_transactions.load(Ordering::Relaxed) => HELD,
        _ => return None,
    };
    Some(Answer::Applied(answer.into()))
}
