//! One key of a batch: its row on the server, and the changes of the batch.

use bytes::Bytes;
use sqlx::mysql::MySqlRow;

use crate::rows::{self, Row};
use crate::statements::Statements;
use idem_core::protocol::{self, Record, RecordedStep, Request, StoredResult, Timestamp};
use idem_core::{RecordKey, StoreError};
use idem_store_kit::columns::Unreadable;
use idem_store_kit::sql::name;

const MOST_STEPS: usize = 65_536;
/// Where the columns of a record begin in a row, after scope and key.
const RECORD: usize = 2;

pub(super) struct Entry<'k> {
    pub(super) key: &'k RecordKey,
    /// `None` if the server has no row; an error if the row cannot be read.
    row: Option<Result<(), Unreadable>>,
    /// The record after the changes so far. It has blanks in place of the steps on the server, except for a
    /// step that a request was compared with.
    pub(super) record: Option<Record>,
    /// Whether the record has a result that was too large to read together with others.
    pub(super) is_large: bool,
    has_changed: bool,
    /// How many steps of the record are on the server.
    steps: usize,
    /// How many of the steps on the server still belong to the record: all or none.
    pub(super) kept: usize,
}

/// The record in a row, with blanks in place of its steps.
pub(crate) fn read(row: &MySqlRow) -> Result<Row, Unreadable> {
    let mut row = rows::read(row, RECORD)?;
    if row.steps > MOST_STEPS {
        return Err(Unreadable("steps"));
    }
    let blank = RecordedStep::new(String::new(), None, StoredResult::Value(Bytes::new()));
    row.record.steps = vec![blank; row.steps];
    Ok(row)
}

impl<'k> Entry<'k> {
    pub(super) const fn absent(key: &'k RecordKey) -> Self {
        Self { key, row: None, record: None, is_large: false, has_changed: false, steps: 0, kept: 0 }
    }

    /// Sets the row that the server has.
    pub(super) fn set_row(&mut self, row: &MySqlRow) {
        self.row = Some(read(row).map(|Row { record, steps, is_large, .. }| {
            (self.record, self.steps, self.kept, self.is_large) = (Some(record), steps, steps, is_large);
        }));
    }

    /// Returns an error if the row cannot be read, unless the batch has deleted the row.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match &self.row {
            Some(Err(unreadable)) if self.record.is_none() && !self.has_changed => {
                Err(unreadable.error(self.key))
            }
            _ => Ok(()),
        }
    }

    /// Puts `there` into the record: the recorded step that the request is compared with. Returns an error if
    /// the record or this step cannot be read, or if the record has too many steps.
    pub(super) fn prepare(
        &mut self,
        request: &Request,
        there: Option<RecordedStep>,
    ) -> Result<(), StoreError> {
        self.check()?;
        let (Request::RecordStep(request), Some(record)) = (request, &mut self.record) else { return Ok(()) };
        let position = usize::try_from(request.position).unwrap_or(usize::MAX);
        if position == record.steps.len() && position >= MOST_STEPS {
            return Err(StoreError::too_large(position, MOST_STEPS));
        }
        if let Some(slot) = record.steps.get_mut(position).filter(|_| position < self.kept) {
            *slot = there.ok_or_else(|| Unreadable("step").error(self.key))?;
        }
        Ok(())
    }

    /// Sets the record that a transition wrote. A transition can add one step or remove all steps.
    pub(super) fn write(&mut self, new: Record) {
        if new.steps.is_empty() {
            self.kept = 0;
        }
        self.record = Some(new);
        (self.has_changed, self.is_large) = (true, false);
    }

    /// Deletes the record. Returns whether the record was live; a record that cannot be read counts as live.
    pub(super) fn forget(&mut self, now: Timestamp) -> bool {
        let is_unreadable = self.check().is_err();
        let record = self.record.take();
        (self.has_changed, self.is_large, self.kept) = (true, false, 0);
        record.map_or(is_unreadable, |record| protocol::is_live(&record, now))
    }

    /// The record, if the batch writes it: as a new row if `is_new`, otherwise over the server's row.
    fn written(&self, is_new: bool) -> Option<(&'k RecordKey, &Record)> {
        let is_so = self.has_changed && self.row.is_none() == is_new;
        Some(self.key).filter(|_| is_so).zip(self.record.as_ref())
    }
}

/// The statements that write the changes of these entries. The insert of new rows begins with `at_once`.
/// Without `at_once`, all rows would wait for a transaction that has locked the gap of one row.
pub(super) fn writes<'e, 'k: 'e>(
    statements: &Statements,
    at_once: &str,
    entries: impl Iterator<Item = &'e Entry<'k>> + Clone,
) -> Vec<String> {
    let mut texts: Vec<String> = entries.clone().flat_map(|entry| deletions(statements, entry)).collect();
    let rows = |is_new| entries.clone().filter_map(move |entry| entry.written(is_new));
    if rows(true).next().is_some() {
        texts.push(at_once.to_owned() + &statements.insert(rows(true)));
    }
    if rows(false).next().is_some() {
        texts.push(statements.replace(rows(false)));
    }
    for Entry { key, kept, record, .. } in entries {
        let steps = record.iter().flat_map(|record| &record.steps).enumerate().skip(*kept);
        texts.extend(steps.map(|(position, step)| statements.append(key, position, step)));
    }
    texts
}

/// The statements that delete a record, or its steps.
fn deletions(statements: &Statements, entry: &Entry<'_>) -> impl Iterator<Item = String> {
    let name = name(entry.key);
    let is_changed = entry.row.is_some() && entry.has_changed;
    // An unreadable row changes only when it is deleted, and may have any number of steps.
    let drops_steps = entry.kept < entry.steps || matches!(entry.row, Some(Err(_)));
    let of_steps = (is_changed && drops_steps).then(|| statements.delete_steps(name));
    let of_row = (is_changed && entry.record.is_none()).then(|| statements.delete(name));
    of_steps.into_iter().chain(of_row)
}
