//! Claims of many keys.
//!
//! Most are of new keys, whose records one statement inserts. The others are judged by the protocol's own function on the
//! rows that a second statement reads, and what they write replaces a row that has not changed meanwhile. Claims of one key
//! are all answered from its row where they would write nothing.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use sqlx::postgres::PgRow;

use super::compare_and_swap::{ROUNDS, Swap, Swapped, each, names, now_of, read, swap};
use super::rows::{self, column};
use super::statements::Statements;
use crate::db::failure::{Failure, raced};
use crate::db::session::{Session, Statement, statement};
use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::protocol::{self, Claim, ClaimAnswer, Fence, Record, Request, State, Timestamp, Transition};
use idem_store_kit::columns::Unreadable;
use idem_store_kit::group_commit::{Answer, Answers, Op, Ticket};
use idem_store_kit::sql::{HELD, name};

/// How many advisory locks a statement takes at most: the server's table of them is small, and every program's.
const LOCKS: usize = 64;

/// The claims of one key that have no answer yet, by their places in the batch.
struct Group<'t> {
    key: &'t RecordKey,
    claims: Vec<(usize, &'t Claim)>,
    /// Whether its result was too large to be read with the others: its claims are put again.
    later: bool,
}

struct Batch<'t> {
    statements: &'t Statements,
    /// In the order of their keys.
    groups: Vec<Group<'t>>,
    answers: Vec<Option<Result<ClaimAnswer, StoreError>>>,
    /// The server's error, if it takes no writes.
    read_only: Option<StoreError>,
}

/// Answers claims, in their order.
pub(super) async fn claim(
    session: &mut Session,
    statements: &Statements,
    tickets: &[Ticket],
) -> Result<Answers, Failure> {
    let mut batch = Batch::new(statements, tickets);
    for _ in 0..ROUNDS {
        let with_locks = statements.with_transactions.load(Ordering::Relaxed);
        batch.insert(session, with_locks).await?;
        if statements.with_transactions.load(Ordering::Relaxed) != with_locks {
            continue;
        }
        batch.replace(session, with_locks).await?;
        if batch.open().is_empty() {
            break;
        }
    }
    for group in std::mem::take(&mut batch.groups).into_iter().filter(|group| !group.later) {
        for (index, _) in group.claims {
            batch.answers[index] = Some(Err(raced()));
        }
    }
    let applied = |answer: ClaimAnswer| Answer::Applied(answer.into());
    Ok(batch.answers.into_iter().map(|answer| answer.map(|answer| answer.map(applied))).collect())
}

impl<'t> Batch<'t> {
    fn new(statements: &'t Statements, tickets: &'t [Ticket]) -> Self {
        let mut groups: BTreeMap<_, Group<'t>> = BTreeMap::new();
        for (index, ticket) in tickets.iter().enumerate() {
            let key = &ticket.operation.key;
            if let Op::Apply(Request::Claim(request)) = &ticket.operation.op {
                let group = groups.entry(name(key));
                let group = group.or_insert_with(|| Group { key, claims: Vec::new(), later: false });
                group.claims.push((index, request));
            }
        }
        let answers = tickets.iter().map(|_| None).collect();
        Self { statements, groups: groups.into_values().collect(), answers, read_only: None }
    }

    /// The places of the groups that wait for an answer.
    fn open(&self) -> Vec<usize> {
        let is_open = |group: &Group<'_>| !group.claims.is_empty() && !group.later;
        (0..self.groups.len()).filter(|&place| is_open(&self.groups[place])).collect()
    }

    /// The numbers of the keys among the server's advisory locks, if they need them.
    fn lock(&self, key: &RecordKey, with_locks: bool) -> Option<i64> {
        with_locks.then(|| self.statements.lock_number(key))
    }

    /// Grants the first claim of each key that has no record, and answers the others of that key.
    async fn insert(&mut self, session: &mut Session, with_locks: bool) -> Result<(), Failure> {
        let open = if self.read_only.is_some() { Vec::new() } else { self.open() };
        for places in open.chunks(if with_locks { LOCKS } else { usize::MAX }) {
            let leads: Vec<_> = places
                .iter()
                .map(|&place| (self.groups[place].key, self.groups[place].claims[0].1))
                .collect();
            let locks: Vec<_> = leads.iter().map(|(key, _)| self.lock(key, with_locks)).collect();
            let query = with_grants(statement(&self.statements.claim_new), &leads).bind(locks);
            let inserted = match session.fetch_all(query).await {
                Err(Failure::ReadOnly(error)) => {
                    self.read_only = Some(error);
                    return Ok(());
                }
                inserted => inserted?,
            };
            for row in &inserted {
                match granted(row, &leads)? {
                    // Who asks again as the same owner gets the same grant.
                    Some((place, record, now)) => drop(self.judge(places[place], Some(&record), now)),
                    None => self.statements.with_transactions.store(true, Ordering::Relaxed),
                }
            }
        }
        Ok(())
    }

    /// Reads the records of the other keys, and writes what their claims make of them.
    async fn replace(&mut self, session: &mut Session, with_locks: bool) -> Result<(), Failure> {
        let open = self.open();
        if open.is_empty() {
            return Ok(());
        }
        let keys: Vec<&RecordKey> = open.iter().map(|&place| self.groups[place].key).collect();
        let (mut swaps, mut swapping) = (Vec::new(), Vec::new());
        for (place, found) in open.into_iter().zip(read(session, self.statements, &keys).await?) {
            let (key, record, now) = match (self.groups[place].key, found) {
                (_, None) => {
                    self.groups[place].later = true;
                    continue;
                }
                (key, Some(Err(unreadable))) => {
                    self.answer(place, &Err(unreadable.error(key)));
                    continue;
                }
                (key, Some(Ok((record, now)))) => (key, record, now),
            };
            let has_result = record.as_ref().is_some_and(|record| {
                matches!(record.state, State::Completed | State::Failed) && protocol::is_live(record, now)
            });
            if let Some(error) = self.read_only.clone().filter(|_| !has_result) {
                self.answer(place, &Err(error));
                continue;
            }
            let Some((new, answer)) = self.judge(place, record.as_ref(), now) else { continue };
            match record {
                Some(old) => {
                    swaps.push(Swap { key, old, new, lock: self.lock(key, with_locks) });
                    swapping.push((place, answer, now));
                }
                // It could not be inserted.
                None if with_locks => self.answer(place, &Ok(HELD)),
                None => {}
            }
        }
        let chunk = if with_locks { LOCKS } else { usize::MAX };
        for (swaps, swapping) in swaps.chunks(chunk).zip(swapping.chunks(chunk)) {
            let swapped = swap(session, self.statements, swaps).await?;
            for ((Swap { new, .. }, (place, answer, now)), swapped) in swaps.iter().zip(swapping).zip(swapped)
            {
                match swapped {
                    Swapped::Written => {
                        let (index, _) = self.groups[*place].claims.remove(0);
                        self.answers[index] = Some(Ok(answer.clone()));
                        self.judge(*place, Some(new), *now);
                    }
                    Swapped::Held => self.answer(*place, &Ok(HELD)),
                    Swapped::Changed => {}
                }
            }
        }
        Ok(())
    }

    /// Answers the claims of one key that write nothing over this record. Returns what the first of the others would write, and
    /// its answer then.
    fn judge(
        &mut self,
        place: usize,
        record: Option<&Record>,
        now: Timestamp,
    ) -> Option<(Record, ClaimAnswer)> {
        let mut first = None;
        let answers = &mut self.answers;
        self.groups[place].claims.retain(|(index, request)| {
            let Transition { write, answer, .. } = protocol::claim(record, Fence::default(), request, now);
            let Some(new) = write else {
                answers[*index] = Some(Ok(answer));
                return false;
            };
            first.get_or_insert((new, answer));
            true
        });
        first
    }

    /// Gives all claims of one key this answer.
    fn answer(&mut self, place: usize, answer: &Result<ClaimAnswer, StoreError>) {
        for (index, _) in self.groups[place].claims.drain(..) {
            self.answers[index] = Some(answer.clone());
        }
    }
}

/// The record that a row says was inserted, by its place among these claims; nothing if the row says that records are made in
/// callers' transactions.
fn granted(
    row: &PgRow,
    leads: &[(&RecordKey, &Claim)],
) -> Result<Option<(usize, Record, Timestamp)>, Unreadable> {
    let Some(scope) = column::<Option<&[u8]>>(row, 0, "scope")? else { return Ok(None) };
    let inserted = (scope, column::<&[u8]>(row, 1, "key")?);
    let place = leads.binary_search_by(|(key, _)| name(key).cmp(&inserted)).map_err(|_| Unreadable("key"))?;
    let (fence, now) = (Fence::new(rows::unsigned(row, 2, "fence")?), now_of(row, 3)?);
    let record = protocol::claim(None, Fence::default(), leads[place].1, now).write;
    Ok(Some((place, record.ok_or(Unreadable("key"))?.with_fence(fence), now)))
}

/// The parameters that a first grant needs.
fn with_grants(statement: Statement, leads: &[(&RecordKey, &Claim)]) -> Statement {
    let (scopes, keys) = names(leads.iter().map(|(key, _)| *key));
    statement
        .bind(scopes)
        .bind(keys)
        .bind(each(leads, |(_, request)| request.owner.as_bytes().as_slice()))
        .bind(each(leads, |(_, request)| rows::fingerprint(request.fingerprint.as_ref())))
        .bind(each(leads, |(_, request)| rows::micros(request.lease)))
        .bind(each(leads, |(_, request)| rows::micros(request.ttl)))
        .bind(each(leads, |(_, request)| rows::word(request.on_crash)))
}
