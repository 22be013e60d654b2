//! Claims of new keys, and completions: one statement writes one or many of them without reading the rows
//! first.
//!
//! Contains no rule of the protocol: the protocol's own functions decide, with [`BLANK_CLOCK`] as the time.
//! The statement then adds the server's time to each instant in the new records. Operations that cannot be
//! answered in this way take the long way (see [`change`](super)).

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Judged;
use crate::db::failure::{Failure, Stage};
use crate::db::session::{Answers, Session};
use crate::reading;
use crate::rows::{BLANK_CLOCK, column};
use crate::setting::Setting;
use crate::statements::Completion;
use crate::text::Prepared;
use idem_core::RecordKey;
use idem_core::protocol::{
    self, Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Record, Request, State, StoredResult,
};
use idem_store_kit::group_commit::{Answer, Op, Operation, Ticket};
use idem_store_kit::sql::{Name, name};

/// Operations share a statement only if they are the whole batch, or if there are at least `FEWEST` of them
/// and they are at least 1 / `PARTS` of the batch. Each such statement costs an exchange and a commit, while
/// the long way takes two exchanges for a whole batch.
const FEWEST: usize = 6;
const PARTS: usize = 4;

/// The shortest `ttl` of a completion in a lot (completions that share a statement). If some completions of a
/// lot were not written, the whole lot is repeated. By then, a result with a shorter `ttl` might have
/// expired, and its completion would be answered as lost.
const SHORTEST: Duration = Duration::from_secs(60);

/// Claims of different keys, in the order of their keys, because all transactions lock the keys in this
/// order.
type Claims<'t> = BTreeMap<Name<'t>, (usize, &'t RecordKey, &'t Claim)>;

/// Completions that share one statement (a lot), and the position of each in the batch.
type Completions<'t> = (Vec<usize>, Vec<Completion<'t>>);

/// Answers as many operations of a batch as it can. The answers have the order of the batch. No exchange
/// leaves a lock behind. The changes of all answered operations are committed.
pub(crate) async fn run(
    session: &mut Session,
    setting: &Setting,
    tickets: &[Ticket],
) -> Result<Vec<Judged>, Failure> {
    let mut answers: Vec<Judged> = tickets.iter().map(|_| None).collect();
    if !session.prepares() {
        return Ok(answers);
    }
    let (mut keys, mut claims, mut completions) = (HashSet::new(), Claims::new(), Vec::new());
    for (place, ticket) in tickets.iter().enumerate() {
        let Operation { key, op, .. } = &*ticket.operation;
        if ticket.is_repeated || !keys.insert(key) {
            continue;
        }
        match op {
            Op::Apply(Request::Claim(request)) => {
                claims.insert(name(key), (place, key, request));
            }
            Op::Apply(Request::Complete(request)) => {
                if let Some(completion) = completion(setting, key, request) {
                    add(&mut completions, place, completion);
                }
            }
            _ => {}
        }
    }
    let are_enough = |count: usize| count >= FEWEST.min(tickets.len()) && count * PARTS >= tickets.len();
    if are_enough(claims.len()) {
        grant(session, setting, &claims, &mut answers).await?;
    }
    for (places, lot) in completions.iter().filter(|(places, _)| are_enough(places.len())) {
        let done = written(session, setting.statements.complete(lot)).await?;
        let done = done.map_or(0, |done| done.written(0));
        for place in places.iter().filter(|_| done > 0) {
            // If the statement wrote only some of these completions, none of them is answered, and each may
            // have been written.
            if done == places.len() as u64 {
                answers[*place] = Some(Ok(Answer::Applied(CompleteAnswer::Done.into())));
            } else {
                tickets[*place].may_be_done.store(true, Ordering::Relaxed);
            }
        }
    }
    Ok(answers)
}

/// Runs a statement. Returns an error if the connection is broken or the server takes no writes. Returns
/// `None` after any other failure, for example because another transaction has locked one of the rows. Then
/// the long way finds out the state of the rows.
async fn written(session: &mut Session, statement: Prepared) -> Result<Option<Answers>, Failure> {
    match session.run_prepared(statement, Stage::Committing).await {
        Ok(done) => Ok(Some(done)),
        Err(failed @ (Failure::Broken(_) | Failure::ReadOnly(_))) => Err(failed),
        Err(_) => Ok(None),
    }
}

/// Grants the claims whose keys are new.
async fn grant(
    session: &mut Session,
    setting: &Setting,
    claims: &Claims<'_>,
    answers: &mut [Judged],
) -> Result<(), Failure> {
    let judge = |request| protocol::claim(None, Fence::default(), request, BLANK_CLOCK);
    let rows: Vec<_> =
        claims.values().filter_map(|(_, key, request)| Some((*key, judge(request).write?))).collect();
    let Some(inserted) = written(session, setting.statements.insert_new(&rows)).await? else { return Ok(()) };
    for row in inserted.rows(0) {
        let name = reading::name(row)?;
        let fence = column::<u64>(row, 2, "fence")?;
        if column::<u64>(row, 3, "in_transaction")? != 0 {
            // Another client of a pooler has left the session in a transaction, so nothing is committed.
            session.roll_back().await;
            return Ok(());
        }
        let Some((place, _, request)) = claims.get(&name) else { continue };
        if let ClaimAnswer::Granted(mut grant) = judge(request).answer {
            grant.fence = Fence::new(fence);
            answers[*place] = Some(Ok(Answer::Applied(ClaimAnswer::Granted(grant).into())));
        }
    }
    Ok(())
}

/// The completion, if one statement can write it together with others.
fn completion<'t>(setting: &Setting, key: &'t RecordKey, request: &Complete) -> Option<Completion<'t>> {
    if request.ttl < SHORTEST || setting.stepped.has(setting.stepped.mark(key)) {
        return None;
    }
    let before = Record::new(State::InFlight, request.owner, request.fence);
    let after = protocol::complete(Some(&before), request, BLANK_CLOCK).write?;
    // An empty result cannot be a parameter; see `Prepared`.
    let has_text = matches!(&after.result, Some(StoredResult::Value(value)) if !value.is_empty());
    has_text.then_some(Completion { key, before, after })
}

fn add<'t>(completions: &mut Vec<Completions<'t>>, place: usize, completion: Completion<'t>) {
    match completions.iter_mut().find(|(_, lot)| lot[0].goes_with(&completion)) {
        Some((places, lot)) => {
            places.push(place);
            lot.push(completion);
        }
        None => completions.push((vec![place], vec![completion])),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use idem_core::protocol::{Fence, Owner, Verdict};
    use idem_test_servers::MariaDb;

    use super::*;
    use crate::statements::test_session::{key_of, opened, setting_of};

    const HOUR: Duration = Duration::from_secs(3_600);

    fn ticket(name: usize, op: Op) -> Ticket {
        Ticket::new(Arc::new(Operation::new(&key_of(&name.to_string()), op)))
    }

    /// Another client of a pooler may have left the session in a transaction. A later rollback of that client
    /// would undo operations that were answered as done.
    #[tokio::test]
    async fn in_a_session_whose_transaction_is_open_nothing_is_granted() {
        let server = MariaDb::shared();
        let (mut session, _) = opened(&server).await;
        let setting = setting_of(&server);
        let claims: Vec<_> = (0..3)
            .map(|name| ticket(name, Op::Apply(Claim::new(Owner::random(), HOUR, HOUR).into())))
            .collect();
        for open in ["START TRANSACTION", "SET autocommit = 0"] {
            session.run(open.to_owned(), Stage::Open).await.unwrap();
            let answers = run(&mut session, &setting, &claims).await.unwrap();
            assert!(answers.iter().all(Option::is_none), "{open}: {answers:?}");
            session.run("COMMIT; SET autocommit = 1".to_owned(), Stage::Open).await.unwrap();
            assert_eq!(server.sql("select count(*) from records"), "0", "{open}");
        }
    }

    #[tokio::test]
    async fn where_some_of_a_lot_are_completed_each_may_be() {
        let server = MariaDb::shared();
        let (mut session, _) = opened(&server).await;
        let setting = setting_of(&server);
        let owner = Owner::random();
        let claims: Vec<_> =
            (0..8).map(|name| ticket(name, Op::Apply(Claim::new(owner, HOUR, HOUR).into()))).collect();
        let granted = run(&mut session, &setting, &claims).await.unwrap();
        let fences: Vec<Fence> = granted
            .iter()
            .map(|answer| match answer {
                Some(Ok(Answer::Applied(protocol::Answer::Claim(ClaimAnswer::Granted(grant))))) => {
                    grant.fence
                }
                other => panic!("{other:?}"),
            })
            .collect();
        let completions = |lost: Option<usize>, ttl: Duration| -> Vec<Ticket> {
            let complete = |name: usize| {
                let fence = if lost == Some(name) { Fence::new(1) } else { fences[name] };
                let result = StoredResult::Value(Bytes::from_static(b"done"));
                Complete::new(owner, fence, Verdict::Completed, result, ttl)
            };
            (0..8).map(|name| ticket(name, Op::Apply(complete(name).into()))).collect()
        };
        for (lost, ttl, are_done, may_be_done, completed) in [
            // A completion with a short `ttl` does not share a statement. Otherwise its result might have
            // expired when the completions of that statement are repeated.
            (Some(3), Duration::ZERO, false, false, "0"),
            (Some(3), HOUR, false, true, "7"),
            // Now only one claim is in flight.
            (None, HOUR, false, true, "8"),
            (None, HOUR, true, false, "8"),
        ] {
            if are_done {
                let _ = server.sql("update records set state = 0, result = null, completed_at = null");
            }
            let lot = completions(lost, ttl);
            let answers = run(&mut session, &setting, &lot).await.unwrap();
            let expected = |answer: &Judged| match answer {
                Some(Ok(_)) => are_done,
                Some(Err(_)) => false,
                None => !are_done,
            };
            assert!(answers.iter().all(expected), "{lost:?} {ttl:?}: {answers:?}");
            let may_be = lot.iter().map(|ticket| ticket.may_be_done.load(Ordering::Relaxed));
            assert_eq!(may_be.collect::<Vec<_>>(), [may_be_done; 8], "{lost:?} {ttl:?}");
            assert_eq!(server.sql("select count(*) from records where state = 1"), completed);
        }
    }
}
