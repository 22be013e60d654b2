//! Claims of new keys and completions that wait together: written at once, without a look at what is there.
//!
//! Restates no rule, as `short` does for one that comes alone. What this does not settle goes the long way.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::Ordering;

use super::Judged;
use crate::clock::clock;
use crate::db::failure::{Failure, Stage};
use crate::db::session::{BEGINNING, COMMIT, Session};
use crate::reading;
use crate::rows::{BLANK_CLOCK, Unreadable};
use crate::setting::Setting;
use crate::statements::large_result;
use crate::statements::lots::Completion;
use idem_core::RecordKey;
use idem_core::protocol::{self, Claim, Complete, CompleteAnswer, Record, Request, State, StoredResult};
use idem_store_kit::group_commit::{Answer, Op, Operation, Ticket};

/// With fewer operations the long way, in two exchanges for all of a batch, is as fast.
const FEWEST: usize = 6;
/// Completions that go together must be at least one in so many of the batch: each such part is an exchange and a commit of its own.
const PARTS: usize = 4;

/// Claims of different keys, in the order of their keys, as all transactions lock them.
type Claims<'t> = BTreeMap<(&'t str, &'t str), (usize, &'t RecordKey, &'t Claim)>;

/// Completions that are one statement, each with its place in the batch.
type Completions<'t> = Vec<(usize, Completion<'t>)>;

/// Answers what it can. All that it changes is committed.
pub(super) async fn run(
    session: &mut Session,
    setting: &Setting,
    tickets: &[Ticket],
) -> Result<Vec<Judged>, Failure> {
    let mut answers: Vec<Judged> = tickets.iter().map(|_| None).collect();
    let (mut keys, mut claims, mut completions) = (HashSet::new(), Claims::new(), Vec::new());
    for (place, ticket) in tickets.iter().enumerate() {
        let Operation { key, op, .. } = &*ticket.operation;
        if ticket.is_repeated || !keys.insert(key) {
            continue;
        }
        match op {
            Op::Apply(Request::Claim(request)) => {
                claims.insert((key.scope().as_str(), key.key().as_str()), (place, key, request));
            }
            Op::Apply(Request::Complete(request)) => {
                if let Some(completion) = completion(setting, key, request) {
                    add(&mut completions, place, completion);
                }
            }
            _ => {}
        }
    }
    if claims.len() >= FEWEST {
        let granted = grant(session, setting, &claims, &mut answers).await;
        if unless_broken(granted)? != Some(true) {
            session.roll_back().await;
            for (place, ..) in claims.values() {
                answers[*place] = None;
            }
        }
    }
    for together in completions.iter().filter(|part| part.len() >= FEWEST.max(tickets.len() / PARTS)) {
        let statement = setting.statements.complete_lot(together.iter().map(|(_, completion)| completion));
        let done = session.run_prepared(statement, Stage::Committing).await;
        let written = unless_broken(done)?.map_or(0, |done| done.written(0));
        for (place, _) in together.iter().filter(|_| written > 0) {
            // Of some it does not say which.
            if written == together.len() as u64 {
                answers[*place] = Some(Ok(Answer::Applied(CompleteAnswer::Done.into())));
            } else {
                tickets[*place].may_be_done.store(true, Ordering::Relaxed);
            }
        }
    }
    Ok(answers)
}

/// `None` if another transaction has one of the rows locked, or the long way has to find out what it is about.
fn unless_broken<T>(done: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(failed @ Failure::Broken(_)) => Err(failed),
        Err(_) => Ok(None),
    }
}

/// Grants the claims whose keys are new, in one transaction. Returns whether it is committed.
async fn grant(
    session: &mut Session,
    setting: &Setting,
    claims: &Claims<'_>,
    answers: &mut [Judged],
) -> Result<bool, Failure> {
    let statements = &setting.statements;
    let found = session.run(statements.begin_lot(), Stage::Open).await?;
    let clock = clock(&found, BEGINNING, setting).map_err(Unreadable::failure)?;
    let granted = |request| protocol::claim(None, clock.floor, request, clock.now);
    let judged: Vec<_> = claims.values().map(|(_, key, request)| (*key, granted(request))).collect();
    let rows = judged.iter().filter_map(|(key, granted)| Some((*key, granted.write.as_ref()?)));
    let inserted =
        session.run_prepared(statements.insert_lot(&rows.collect::<Vec<_>>()), Stage::Open).await?;
    for row in inserted.rows(0) {
        let (scope, key) = reading::name(row).map_err(Unreadable::failure)?;
        let names = str::from_utf8(scope).ok().zip(str::from_utf8(key).ok());
        let Some((place, _, request)) = names.and_then(|names| claims.get(&names)) else { return Ok(false) };
        answers[*place] = Some(Ok(Answer::Applied(granted(request).answer.into())));
    }
    let lowest =
        judged.iter().filter_map(|(_, granted)| granted.write.as_ref()).map(|record| record.fence.get());
    let checked = lowest.min().map(|fence| statements.floor_is_below(fence) + "; ").unwrap_or_default();
    session.run(checked + COMMIT, Stage::Committing).await?;
    Ok(true)
}

/// The completion that one statement can do with others.
fn completion<'t>(setting: &Setting, key: &'t RecordKey, request: &Complete) -> Option<Completion<'t>> {
    if setting.stepped.has(setting.stepped.mark(key)) {
        return None;
    }
    let before = Record::new(State::InFlight, request.owner, request.fence);
    let after = protocol::complete(Some(&before), request, BLANK_CLOCK).write?;
    // An empty one is not a parameter: see `Prepared`.
    let has_text = matches!(&after.result, Some(StoredResult::Value(value)) if !value.is_empty());
    (has_text && large_result(&after).is_none()).then_some(Completion { key, before, after })
}

fn add<'t>(completions: &mut Vec<Completions<'t>>, place: usize, completion: Completion<'t>) {
    let fits = |together: &&mut Completions<'t>| together[0].1.goes_with(&completion);
    match completions.iter_mut().find(fits) {
        Some(together) => together.push((place, completion)),
        None => completions.push(vec![(place, completion)]),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;
    use idem_core::protocol::{Fence, Owner, Verdict};
    use idem_test_servers::MariaDb;

    use super::*;
    use crate::statements::test_session::{key_of, opened, setting_of};

    const HOUR: Duration = Duration::from_secs(3_600);

    fn ticket(name: usize, op: Op) -> Ticket {
        Ticket::new(Arc::new(Operation::new(&key_of(&name.to_string()), op)))
    }

    #[tokio::test]
    async fn where_some_of_a_lot_are_completed_each_may_be() {
        let server = MariaDb::start();
        let (mut session, _) = opened(&server).await;
        let setting = setting_of(&server);
        let owner = Owner::random();
        let claims: Vec<_> =
            (0..8).map(|name| ticket(name, Op::Apply(Claim::new(owner, HOUR, HOUR).into()))).collect();
        let granted = run(&mut session, &setting, &claims).await.unwrap();
        let fence = |place: usize| match &granted[place] {
            Some(Ok(Answer::Applied(protocol::Answer::Claim(protocol::ClaimAnswer::Granted(grant))))) => {
                grant.fence
            }
            other => panic!("{other:?}"),
        };
        let completions = |lost: Option<usize>| -> Vec<Ticket> {
            let complete = |name: usize| {
                let fence = if lost == Some(name) { Fence::new(1) } else { fence(name) };
                let result = StoredResult::Value(Bytes::from_static(b"done"));
                Complete::new(owner, fence, Verdict::Completed, result, HOUR)
            };
            (0..8).map(|name| ticket(name, Op::Apply(complete(name).into()))).collect()
        };
        let may_be = |tickets: &[Ticket]| -> Vec<bool> {
            tickets.iter().map(|ticket| ticket.may_be_done.load(Ordering::Relaxed)).collect()
        };
        let (some, none, all) = (completions(Some(3)), completions(None), completions(None));
        let answers = run(&mut session, &setting, &some).await.unwrap();
        assert!(answers.iter().all(Option::is_none), "{answers:?}");
        assert_eq!(may_be(&some), [true; 8]);
        assert_eq!(server.sql("select count(*) from records where state = 1"), "7");
        // Now one is in flight.
        let answers = run(&mut session, &setting, &none).await.unwrap();
        assert!(answers.iter().all(Option::is_none), "{answers:?}");
        let _ = server.sql("update records set state = 0, result = null, completed_at = null");
        let answers = run(&mut session, &setting, &all).await.unwrap();
        assert!(answers.iter().all(|answer| matches!(answer, Some(Ok(_)))), "{answers:?}");
        assert_eq!(may_be(&all), [false; 8]);
    }
}
