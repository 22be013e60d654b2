//! Operations that change records. One transaction for a whole batch locks the rows, decides by the protocol's own functions, and
//! writes: the long way. `at_once` tries a shorter one first.

pub(super) mod at_once;
mod entry;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::time::Duration;

use sqlx::mysql::MySqlRow;

use self::entry::Entry;
use super::reading::{self, Rest, clock};
use super::rows;
use super::setting::Setting;
use crate::db::failure::Stage;
use crate::db::failure::{Failure, locked};
use crate::db::session::{BEGINNING, COMMIT, Session};
use idem_core::protocol::{
    self, Claim, ClaimAnswer, Fence, Record, RecordStep, RecordedStep, Request, State, Timestamp,
};
use idem_core::{RecordKey, StoreError};
use idem_store_kit::columns::Unreadable;
use idem_store_kit::group_commit::{Answer, Answers, Op, Operation, Seen, Ticket};

/// `retry_after` of a duplicate while a caller's transaction has the key. When that ends is unknown.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Answers a batch, in its order. Either all changes that it answers are committed, or none.
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
    for (ticket, answer) in tickets.iter().zip(&mut answers) {
        // The answer is a large result, which was not read with the record.
        if answer.is_none()
            && let Some(request) = claim_of(&ticket.operation.op)
        {
            let whole = match rest.read(session, setting, &ticket.operation.key).await {
                Ok(Some(whole)) => whole,
                Ok(None) => continue,
                // What is committed has its answers. The others are repeated.
                Err(_) if is_any_answered => {
                    session.leave();
                    break;
                }
                Err(failed) => return Err(failed),
            };
            let judged = whole.map(|whole| unwritten(setting, request, whole, Why::Locked));
            *answer = Some(match judged {
                Ok(answer) => answer.ok_or_else(locked),
                Err(unreadable) => Err(unreadable.error(&ticket.operation.key)),
            });
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
    let mut entries: BTreeMap<(&str, &str), Entry<'_>> = BTreeMap::new();
    for ticket in tickets {
        let key = &ticket.operation.key;
        entries.entry(name(key)).or_insert_with(|| Entry::absent(key));
    }
    let keys: Vec<&RecordKey> = entries.values().map(|entry| entry.key).collect();
    let response = session.run(statements.lock(keys.into_iter()), Stage::Open).await?;
    for row in response.rows(BEGINNING) {
        let (scope, key) = reading::name(row).map_err(Unreadable::failure)?;
        if let (Ok(scope), Ok(key)) = (str::from_utf8(scope), str::from_utf8(key))
            && let Some(entry) = entries.get_mut(&(scope, key))
        {
            entry.set_row(row);
        }
    }
    let now = clock(&response, BEGINNING + 1, setting).map_err(Unreadable::failure)?;
    let mut there = steps_there(session, setting, tickets, &entries).await?;
    let mut answers = Vec::with_capacity(tickets.len());
    for (place, ticket) in tickets.iter().enumerate() {
        let operation = &ticket.operation;
        let answer = match entries.get_mut(&name(&operation.key)) {
            Some(entry) => judge(entry, operation, now, there.remove(&place)),
            None => Some(Err(locked())),
        };
        answers.push(answer);
    }
    write(session, setting, &entries).await?;
    Ok(answers)
}

fn name(key: &RecordKey) -> (&str, &str) {
    (key.scope().as_str(), key.key().as_str())
}

/// The recorded steps at the positions where requests want to record one, by the request's place in the batch. A repeated request
/// finds its own step there.
async fn steps_there(
    session: &mut Session,
    setting: &Setting,
    tickets: &[Ticket],
    entries: &BTreeMap<(&str, &str), Entry<'_>>,
) -> Result<HashMap<usize, RecordedStep>, Failure> {
    let mut there = HashMap::new();
    for (place, ticket) in tickets.iter().enumerate() {
        let key = &ticket.operation.key;
        if let Op::Apply(Request::RecordStep(RecordStep { position, .. })) = &ticket.operation.op
            && let Some(entry) = entries.get(&name(key))
            && usize::try_from(*position).is_ok_and(|position| position < entry.steps)
        {
            let response = session.run(setting.statements.step(key, *position), Stage::Open).await?;
            if let Some(row) = response.rows(0).first()
                && let Ok(step) = rows::step(row, 0)
            {
                there.insert(place, step);
            }
        }
    }
    Ok(there)
}

/// Applies one operation to the record as it is known; `None` if the answer is a result that was not read.
fn judge(
    entry: &mut Entry<'_>,
    operation: &Operation,
    now: Timestamp,
    there: Option<RecordedStep>,
) -> Judged {
    match &operation.op {
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

/// The grant that a claim would get. It does not write `in doubt` or `exhausted`: every later claim finds them again.
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

/// The grant that a claim would get, or its answer, and the record there is: by a row that was read in a caller's transaction.
pub(super) fn look_at(
    key: &RecordKey,
    row: Option<&MySqlRow>,
    request: &Claim,
    now: Timestamp,
) -> (Judged, Option<Record>) {
    let mut entry = Entry::absent(key);
    if let Some(row) = row {
        entry.set_row(row);
    }
    (look(&mut entry, request, now), entry.record.clone())
}

/// Writes the changes, and commits.
async fn write(
    session: &mut Session,
    setting: &Setting,
    entries: &BTreeMap<(&str, &str), Entry<'_>>,
) -> Result<(), Failure> {
    let mut texts = entry::writes(&setting.statements, session.at_once(), entries.values());
    texts.push(COMMIT.to_owned());
    session.run(texts.join("; "), Stage::Committing).await.map(drop)
}

/// The claim in an operation.
const fn claim_of(op: &Op) -> Option<&Claim> {
    match op {
        Op::Apply(Request::Claim(request)) | Op::Look(request) => Some(request),
        _ => None,
    }
}

/// Why an operation must not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Another transaction has the record locked.
    Locked,
    /// The server takes no writes. It may be a replica that lags behind, so only results count: they do not change.
    ReadOnly,
}

/// Answers a claim that would write nothing, by a read without a lock.
pub(super) async fn without_writing(
    session: &mut Session,
    setting: &Setting,
    operation: &Operation,
    why: Why,
) -> Result<Option<Answer>, Failure> {
    let Some(request) = claim_of(&operation.op) else { return Ok(None) };
    let whole = Rest::default().read(session, setting, &operation.key).await?;
    let whole = whole.and_then(Result::ok);
    Ok(whole.and_then(|whole| unwritten(setting, request, whole, why)))
}

/// The answer to a claim that must not write, if there is one. A locked record means that a caller's transaction has the key, if
/// callers record in their own transactions.
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
        Some(_) if why == Why::Locked && setting.has_transactions.load(Ordering::Relaxed) => {
            ClaimAnswer::Busy { retry_after: RETRY_AFTER }
        }
        _ => return None,
    };
    Some(Answer::Applied(answer.into()))
}
