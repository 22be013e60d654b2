//! Answers requests from the records of their keys: reads the rows, decides by the protocol's functions, and
//! writes the new records over rows that have not changed since.

use std::collections::{BTreeMap, HashMap};

use sqlx::postgres::PgRow;

use super::rows;
use super::statements::Statements;
use crate::db::failure::{Failure, raced};
use crate::db::session::{Session, statement};
use idem_core::protocol::{self, Fence, Record, Request, State, Timestamp, Transition};
use idem_core::{RecordKey, StoreError};
use idem_store_kit::columns::Unreadable;
use idem_store_kit::group_commit::{self, Op, Ticket};
use idem_store_kit::sql::{HELD, name};

/// How many times an operation is tried if others change its record in the meantime.
pub(super) const ROUNDS: usize = 8;

/// How many advisory locks a statement takes at most. There is a limit, because the server's table of locks
/// is small and all programs share it.
const LOCKS: usize = 64;

/// How many keys a statement has at most, depending on whether each key needs its advisory lock.
pub(super) const fn most_keys(with_locks: bool) -> usize {
    if with_locks { LOCKS } else { usize::MAX }
}

/// The requests of one key that have no answer yet, with their positions in the batch.
pub(super) struct Group<'t> {
    pub(super) key: &'t RecordKey,
    pub(super) requests: Vec<(usize, &'t Request)>,
    /// Whether the record was too large to be read together with others. If so, the group's requests stay
    /// without an answer, and the group commit repeats them.
    is_left: bool,
}

/// The requests of a batch.
pub(super) struct Batch<'t> {
    pub(super) statements: &'t Statements,
    /// The groups in the order of their keys, so that two batches cannot deadlock.
    pub(super) groups: Vec<Group<'t>>,
    answers: Vec<Option<Result<protocol::Answer, StoreError>>>,
}

impl<'t> Batch<'t> {
    pub(super) fn new(statements: &'t Statements, tickets: &'t [Ticket]) -> Self {
        let mut groups: BTreeMap<_, Group<'t>> = BTreeMap::new();
        for (place, ticket) in tickets.iter().enumerate() {
            let key = &ticket.operation.key;
            if let Op::Apply(request) = &ticket.operation.op {
                let group = groups.entry(name(key));
                let group = group.or_insert_with(|| Group { key, requests: Vec::new(), is_left: false });
                group.requests.push((place, request));
            }
        }
        let answers = tickets.iter().map(|_| None).collect();
        Self { statements, groups: groups.into_values().collect(), answers }
    }

    /// The positions of the groups that wait for an answer.
    pub(super) fn open(&self) -> Vec<usize> {
        let is_open = |group: &Group<'_>| !group.requests.is_empty() && !group.is_left;
        (0..self.groups.len()).filter(|&place| is_open(&self.groups[place])).collect()
    }

    /// The number of the key's advisory lock; `None` if the statement needs no lock.
    pub(super) fn lock(&self, key: &RecordKey, with_locks: bool) -> Option<i64> {
        with_locks.then(|| self.statements.lock_number(key))
    }

    /// Answers all requests by [`replace`](Self::replace). If others change the records, calls it again, at
    /// most [`ROUNDS`] times in all.
    pub(super) async fn settle(mut self, session: &mut Session) -> Result<group_commit::Answers, Failure> {
        for _ in 0..ROUNDS {
            self.replace(session, false, None).await?;
        }
        Ok(self.end())
    }

    /// Returns the answers. A request that is still open fails, because others changed its record in each
    /// round.
    pub(super) fn end(mut self) -> group_commit::Answers {
        for place in self.open() {
            self.answer(place, &Err(raced()));
        }
        let applied = |answer: Result<_, _>| answer.map(group_commit::Answer::Applied);
        self.answers.into_iter().map(|answer| answer.map(applied)).collect()
    }

    /// Reads the records, and answers the requests that would write nothing. For each key, the first request
    /// that would write then replaces the old record. Other statements write steps, and the first record of a
    /// key.
    ///
    /// `read_only` is the error of a server that accepts no writes. With it, all requests of a key get this
    /// error, unless the key's record has a result.
    pub(super) async fn replace(
        &mut self,
        session: &mut Session,
        with_locks: bool,
        read_only: Option<&StoreError>,
    ) -> Result<(), Failure> {
        let open = self.open();
        if open.is_empty() {
            return Ok(());
        }
        let keys: Vec<&RecordKey> = open.iter().map(|&place| self.groups[place].key).collect();
        let (mut swaps, mut swapping) = (Vec::new(), Vec::new());
        for (place, found) in open.into_iter().zip(read(session, self.statements, &keys).await?) {
            let (key, record, now) = match (self.groups[place].key, found) {
                (_, None) => {
                    self.groups[place].is_left = true;
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
            if let Some(error) = read_only.filter(|_| !has_result) {
                self.answer(place, &Err(error.clone()));
                continue;
            }
            let Some((new, answer)) = self.judge(place, record.as_ref(), now) else { continue };
            match record {
                Some(_) if matches!(answer, protocol::Answer::RecordStep(_)) => {}
                Some(old) => {
                    swaps.push(Swap { key, old, new, lock: self.lock(key, with_locks) });
                    swapping.push((place, answer, now));
                }
                // `claim_new` did not insert the record, so a caller's transaction holds the key.
                None if with_locks => self.answer(place, &Ok(HELD.into())),
                None => {}
            }
        }
        let most = most_keys(with_locks);
        for (swaps, swapping) in swaps.chunks(most).zip(swapping.chunks(most)) {
            let swapped = swap(session, self.statements, swaps).await?;
            for ((Swap { new, .. }, (place, answer, now)), swapped) in swaps.iter().zip(swapping).zip(swapped)
            {
                match swapped {
                    Swapped::Written => {
                        self.answer_first(*place, answer.clone());
                        self.judge(*place, Some(new), *now);
                    }
                    Swapped::Held => self.answer(*place, &Ok(HELD.into())),
                    Swapped::Changed => {}
                }
            }
        }
        Ok(())
    }

    /// Answers the requests of one key that would not change this record. Returns the record that the first
    /// of the other requests would write, and that request's answer after the write.
    pub(super) fn judge(
        &mut self,
        place: usize,
        record: Option<&Record>,
        now: Timestamp,
    ) -> Option<(Record, protocol::Answer)> {
        let mut first = None;
        let answers = &mut self.answers;
        self.groups[place].requests.retain(|(index, request)| {
            let Transition { write, answer, .. } = protocol::apply(record, Fence::default(), request, now);
            let Some(new) = write else {
                answers[*index] = Some(Ok(answer));
                return false;
            };
            first.get_or_insert((new, answer));
            true
        });
        first
    }

    /// Gives this answer to the first request of a key, after that request's write succeeded.
    pub(super) fn answer_first(&mut self, place: usize, answer: protocol::Answer) {
        let (index, _) = self.groups[place].requests.remove(0);
        self.answers[index] = Some(Ok(answer));
    }

    /// Gives this answer to all requests of one key.
    fn answer(&mut self, place: usize, answer: &Result<protocol::Answer, StoreError>) {
        for (index, _) in self.groups[place].requests.drain(..) {
            self.answers[index] = Some(answer.clone());
        }
    }
}

/// A record that replaces another.
struct Swap<'k> {
    key: &'k RecordKey,
    old: Record,
    new: Record,
    /// The number of the key's advisory lock; `None` if the statement needs no lock.
    lock: Option<i64>,
}

/// The outcome of a [`Swap`].
#[derive(Clone, Copy)]
enum Swapped {
    Written,
    /// The record has changed since it was read.
    Changed,
    /// A caller's transaction holds the key.
    Held,
}

/// The record in a row, and the time when it was read.
type Found = Result<(Option<Record>, Timestamp), Unreadable>;

/// The position of the row's key in the arrays of the statement.
pub(super) fn number_of(row: &PgRow, index: usize) -> Result<usize, Unreadable> {
    let number = rows::unsigned(row, index, "n")?;
    usize::try_from(number).ok().and_then(|number| number.checked_sub(1)).ok_or(Unreadable("n"))
}

pub(super) fn now_of(row: &PgRow, index: usize) -> Result<Timestamp, Unreadable> {
    rows::unsigned(row, index, "now").map(Timestamp::from_micros)
}

pub(super) fn names<'k>(keys: impl Iterator<Item = &'k RecordKey>) -> (Vec<&'k [u8]>, Vec<&'k [u8]>) {
    keys.map(name).unzip()
}

/// A column of parameters, with the value `of(row)` for each row.
pub(super) fn each<'r, R, T>(rows: &'r [R], of: impl Fn(&'r R) -> T) -> Vec<T> {
    rows.iter().map(of).collect()
}

/// Reads the records of these keys: the first record whatever its size, and the others if they are small.
/// `None` for each key whose record is left out.
async fn read(
    session: &mut Session,
    statements: &Statements,
    keys: &[&RecordKey],
) -> Result<Vec<Option<Found>>, Failure> {
    let (scopes, texts) = names(keys.iter().copied());
    let query = match (scopes.as_slice(), texts.as_slice()) {
        (&[scope], &[text]) => statement(&statements.read_one).bind(scope).bind(text),
        _ => statement(&statements.read).bind(scopes).bind(texts),
    };
    let given = session.fetch_all(query).await?;
    let mut found: Vec<Option<Found>> = keys.iter().map(|_| None).collect();
    for row in &given {
        let read = || {
            let record = match rows::column::<bool>(row, 2, "found")? {
                true => {
                    let steps = rows::steps(row, 3 + rows::COLUMNS.len())?;
                    Some(rows::read(row, 3)?.with_steps(steps))
                }
                false => None,
            };
            Ok((record, now_of(row, 1)?))
        };
        if let Ok(place) = number_of(row, 0)
            && let Some(slot) = found.get_mut(place)
        {
            *slot = Some(read());
        }
    }
    Ok(found)
}

/// Writes each new record if the old one is unchanged. The keys are sorted, so that two batches cannot
/// deadlock.
async fn swap(
    session: &mut Session,
    statements: &Statements,
    swaps: &[Swap<'_>],
) -> Result<Vec<Swapped>, Failure> {
    let mut done = vec![Swapped::Changed; swaps.len()];
    if swaps.is_empty() {
        return Ok(done);
    }
    let (scopes, texts) = names(swaps.iter().map(|swap| swap.key));
    let ends = |record: &Record| record.expires_at.map(rows::instant);
    let results = swaps.iter().map(|swap| rows::result_columns(swap.new.result.as_ref()));
    let (tombstones, bytes): (Vec<_>, Vec<_>) = results.unzip();
    let query = statement(&statements.swap)
        .bind(scopes)
        .bind(texts)
        .bind(each(swaps, |swap| rows::word(swap.old.state)))
        .bind(each(swaps, |swap| swap.old.owner.as_bytes().as_slice()))
        .bind(each(swaps, |swap| rows::integer(swap.old.fence.get())))
        .bind(each(swaps, |swap| rows::instant(swap.old.lease_until)))
        .bind(each(swaps, |swap| ends(&swap.old)))
        .bind(each(swaps, |swap| rows::word(swap.new.state)))
        .bind(each(swaps, |swap| swap.new.owner.as_bytes().as_slice()))
        .bind(each(swaps, |swap| rows::integer(swap.new.fence.get())))
        .bind(each(swaps, |swap| i64::from(swap.new.attempt)))
        .bind(each(swaps, |swap| swap.new.recovered))
        .bind(each(swaps, |swap| rows::word(swap.new.on_crash)))
        .bind(each(swaps, |swap| rows::instant(swap.new.lease_until)))
        .bind(each(swaps, |swap| rows::instant(swap.new.retry_at)))
        .bind(each(swaps, |swap| rows::micros(swap.new.ttl)))
        .bind(each(swaps, |swap| rows::fingerprint(swap.new.fingerprint.as_ref())))
        .bind(tombstones)
        .bind(each(swaps, |swap| rows::instant(swap.new.created_at)))
        .bind(each(swaps, |swap| swap.new.completed_at.map(rows::instant)))
        .bind(each(swaps, |swap| ends(&swap.new)))
        .bind(bytes)
        .bind(each(swaps, |swap| swap.lock));
    let given = session.fetch_all(query).await?;
    for row in &given {
        if let Ok(place) = number_of(row, 0)
            && let Some(done) = done.get_mut(place)
            && let Ok(written) = rows::column::<bool>(row, 1, "written")
        {
            *done = if written { Swapped::Written } else { Swapped::Held };
        }
    }
    Ok(done)
}

/// Answers reads.
pub(super) async fn get(
    session: &mut Session,
    statements: &Statements,
    tickets: &[Ticket],
) -> Result<group_commit::Answers, Failure> {
    let mut keys: Vec<_> = tickets.iter().map(|ticket| &ticket.operation.key).collect();
    keys.sort_by_key(|key| name(key));
    keys.dedup();
    let records = read(session, statements, &keys).await?;
    let records: HashMap<_, _> = keys.into_iter().zip(records).collect();
    let answers = tickets.iter().map(|ticket| match records.get(&ticket.operation.key)?.clone()? {
        Ok((record, now)) => {
            let live = record.filter(|record| protocol::is_live(record, now));
            Some(Ok(group_commit::Answer::Found(live.map(Box::new))))
        }
        Err(unreadable) => Some(Err(unreadable.error(&ticket.operation.key))),
    });
    Ok(answers.collect())
}
