//! Reads without locks.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use sqlx::mysql::MySqlRow;

use super::rows::{self, Row, column};
use super::setting::Setting;
use crate::db::failure::{Failure, Stage};
use crate::db::session::{Answers, BEGINNING, Session};
use idem_core::RecordKey;
use idem_core::protocol::{self, Record, StoredResult, Timestamp};
use idem_store_kit::columns::Unreadable;
use idem_store_kit::group_commit::{self, Answer, Operation};
use idem_store_kit::sql::{self, Name};

/// About how many bytes of results and steps one batch reads. Operations that need more are repeated in the
/// next batch.
const READ_BYTES: usize = 1 << 20;
/// Where the columns of a record begin in a row, after scope and key.
const RECORD: usize = 2;

/// The scope and key of a row.
pub(super) fn name(row: &MySqlRow) -> Result<Name<'_>, Unreadable> {
    Ok((column(row, 0, "scope")?, column(row, 1, "key")?))
}

/// Returns the time from the answer to `Statements::clock`. If the answer says that callers use transactions,
/// remembers this fact in `setting`.
pub(super) fn clock(answers: &Answers, statement: usize, setting: &Setting) -> Result<Timestamp, Unreadable> {
    let row = answers.rows(statement).first();
    let count = row.map(|row| column::<Option<u64>>(row, 1, "transactions")).transpose()?.flatten();
    if count.is_some_and(|count| count > 0) {
        setting.has_transactions.store(true, Ordering::Relaxed);
    }
    rows::now(row, 0)
}

/// Answers reads. The answers have the order of the operations.
pub(super) async fn get(
    session: &mut Session,
    setting: &Setting,
    operations: &[&Operation],
) -> Result<group_commit::Answers, Failure> {
    let mut keys: Vec<&RecordKey> = operations.iter().map(|operation| &operation.key).collect();
    keys.sort_by_key(|key| (key.scope().as_str(), key.key().as_str()));
    keys.dedup();
    let response = look(session, setting, &keys).await?;
    let mut rest = Rest::default();
    let mut answers = Vec::with_capacity(operations.len());
    for Operation { key, .. } in operations {
        let read = match row(&response, key).map(record_and_time).transpose() {
            Ok(Some((row, _))) if row.is_large || row.steps > 0 => rest.read(session, setting, key).await?,
            Ok(row) => Some(Ok(row.map(|(row, now)| (Some(row.record), now)).unwrap_or_default())),
            Err(unreadable) => Some(Err(unreadable)),
        };
        let live = |(record, now): (Option<Record>, Timestamp)| {
            let live = record.filter(|record| protocol::is_live(record, now));
            Answer::Found(live.map(Box::new))
        };
        answers.push(read.map(|read| read.map(live).map_err(|unreadable| unreadable.error(key))));
    }
    Ok(answers)
}

/// The record in a row, without its steps, and the time when it was read.
fn record_and_time(row: &MySqlRow) -> Result<(Row, Timestamp), Unreadable> {
    Ok((rows::read(row, RECORD)?, rows::now(Some(row), RECORD + rows::WIDTH)?))
}

/// The row of this key among the rows that the statement at this index returned.
fn row<'a>((answers, place): &'a (Answers, usize), key: &RecordKey) -> Option<&'a MySqlRow> {
    answers.rows(*place).iter().find(|row| name(row).is_ok_and(|name| name == sql::name(key)))
}

/// Reads the rows of these keys. Uses a prepared statement if the session prepares statements and all keys
/// have the same scope. Returns the answers, and the index of the statement that read the rows.
async fn look(
    session: &mut Session,
    setting: &Setting,
    keys: &[&RecordKey],
) -> Result<(Answers, usize), Failure> {
    let is_one_scope = keys.iter().all(|key| key.scope() == keys[0].scope());
    if is_one_scope && session.prepares() {
        match session.run_prepared(setting.statements.look_prepared(keys), Stage::Open).await {
            Ok(answers) if !answers.rows(0).is_empty() => return Ok((answers, 0)),
            // No rows: either no key has a record, or the session is in a transaction, in which
            // `look_prepared` returns nothing. `Refused`: the server does not prepare this statement. In both
            // cases, the statement below reads again, as text.
            Ok(_) | Err(Failure::Refused(_)) => {}
            Err(failed) => return Err(failed),
        }
    }
    Ok((session.run(setting.statements.look(keys), Stage::Open).await?, 1))
}

/// A record with its steps and its result, and the time when it was read.
type Whole = Result<(Option<Record>, Timestamp), Unreadable>;

/// The records whose results or steps the first read of a batch left out. The batch reads each such record
/// once, alone, with its result and steps. It stops reading such records after about [`READ_BYTES`].
#[derive(Default)]
pub(super) struct Rest<'k> {
    read: HashMap<&'k RecordKey, Whole>,
    bytes: usize,
}

impl<'k> Rest<'k> {
    /// Reads one record. `None` if the batch has read as much as it may; then the operation must be repeated.
    pub(super) async fn read(
        &mut self,
        session: &mut Session,
        setting: &Setting,
        key: &'k RecordKey,
    ) -> Result<Option<Whole>, Failure> {
        if let Some(read) = self.read.get(key) {
            return Ok(Some(read.clone()));
        }
        if self.bytes > READ_BYTES {
            return Ok(None);
        }
        let read = whole(session, setting, key).await?;
        if let Ok((Some(record), _)) = &read {
            let results = record.steps.iter().map(|step| &step.result).chain(&record.result);
            self.bytes += results.map(StoredResult::size).sum::<usize>();
        }
        self.read.insert(key, read.clone());
        Ok(Some(read))
    }
}

/// Reads one record with its steps and its result.
async fn whole(session: &mut Session, setting: &Setting, key: &RecordKey) -> Result<Whole, Failure> {
    let response = session.run(setting.statements.look_at_all(key), Stage::Open).await;
    if response.is_err() {
        // A transaction with an old snapshot may still be open in the session, so the session is not used
        // again.
        session.leave();
    }
    let response = response?;
    let now = clock(&response, BEGINNING, setting)?;
    let (row, steps) = (response.rows(BEGINNING + 1).first(), response.rows(BEGINNING + 2));
    let record = row.map(|row| rows::read(row, RECORD).and_then(|row| with_steps(row, steps)));
    Ok(record.transpose().map(|record| (record, now)))
}

fn with_steps(row: Row, steps: &[MySqlRow]) -> Result<Record, Unreadable> {
    let steps: Result<Vec<_>, _> = steps.iter().take(row.steps).map(|step| rows::step(step, 0)).collect();
    let steps = steps?;
    if steps.len() < row.steps {
        return Err(Unreadable("steps"));
    }
    Ok(row.record.with_steps(steps))
}
