//! One key of a batch: its row on the server, and the changes of the batch.

use bytes::Bytes;
use sqlx::mysql::MySqlRow;

use crate::rows::{self, Row};
use crate::statements::Statements;
use idem_core::protocol::{self, Record, RecordedStep, Request, StoredResult, Timestamp};
use idem_core::{RecordKey, StoreError};
use idem_store_kit::columns::Unreadable;
use idem_store_kit::step_bytes;

/// How many steps a record may have.
const MOST_STEPS: usize = 65_536;
/// Where the columns of a record begin in a row, after scope and key.
const RECORD: usize = 2;

/// The state of one key in a batch.
pub(super) struct Entry<'k> {
    pub(super) key: &'k RecordKey,
    /// Whether the server has a row, or why that row cannot be read.
    row: Option<Result<(), Unreadable>>,
    /// The record after the changes so far, with blanks in place of its steps, which nothing reads.
    pub(super) record: Option<Record>,
    /// How many steps the server has.
    pub(super) steps: usize,
    /// Whether the result of the record was not read.
    pub(super) is_large: bool,
    has_changed: bool,
    /// Whether to delete the server's steps.
    without_steps: bool,
    /// The steps to add, each with its position.
    appended: Vec<(usize, Vec<u8>)>,
}

fn blank() -> RecordedStep {
    RecordedStep::new(String::new(), None, StoredResult::Value(Bytes::new()))
}

impl<'k> Entry<'k> {
    pub(super) const fn absent(key: &'k RecordKey) -> Self {
        Self {
            key,
            row: None,
            record: None,
            steps: 0,
            is_large: false,
            has_changed: false,
            without_steps: false,
            appended: Vec::new(),
        }
    }

    /// Sets the row that the server has.
    pub(super) fn set_row(&mut self, row: &MySqlRow) {
        self.row = Some(rows::read(row, RECORD).and_then(|row| self.take(row)));
    }

    fn take(&mut self, Row { mut record, steps, is_large, .. }: Row) -> Result<(), Unreadable> {
        if steps > MOST_STEPS {
            return Err(Unreadable("steps"));
        }
        record.steps = vec![blank(); steps];
        (self.record, self.steps, self.is_large) = (Some(record), steps, is_large);
        Ok(())
    }

    /// Returns an error if the row cannot be read.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match &self.row {
            Some(Err(unreadable)) if self.record.is_none() && !self.has_changed => {
                Err(unreadable.error(self.key))
            }
            _ => Ok(()),
        }
    }

    /// Sets the step that the request compares with, or returns an error if the record cannot be read.
    pub(super) fn prepare(
        &mut self,
        request: &Request,
        there: Option<RecordedStep>,
    ) -> Result<(), StoreError> {
        self.check()?;
        let Request::RecordStep(request) = request else { return Ok(()) };
        let position = usize::try_from(request.position).unwrap_or(usize::MAX);
        let Some(record) = &mut self.record else { return Ok(()) };
        if position == record.steps.len() && position >= MOST_STEPS {
            return Err(StoreError::too_large(position, MOST_STEPS));
        }
        if let Some(slot) = record.steps.get_mut(position) {
            let added = self.appended.iter().find(|(added, _)| *added == position);
            let added = added.and_then(|(_, bytes)| step_bytes::decode(Bytes::copy_from_slice(bytes)));
            match added.or_else(|| there.filter(|_| !self.without_steps)) {
                Some(step) => *slot = step,
                None => return Err(Unreadable("step").error(self.key)),
            }
        }
        Ok(())
    }

    /// Sets the record that a transition wrote.
    pub(super) fn write(&mut self, new: Record) {
        let had = self.record.as_ref().map_or(0, |record| record.steps.len());
        if new.steps.len() > had {
            let added = new.steps.iter().enumerate().skip(had);
            self.appended.extend(added.map(|(position, step)| (position, step_bytes::encode(step))));
        } else if new.steps.is_empty() && had > 0 {
            self.drop_steps();
        }
        self.record = Some(new);
        self.is_large = false;
        self.has_changed = true;
    }

    fn drop_steps(&mut self) {
        self.without_steps = true;
        self.appended.clear();
    }

    /// Deletes the record. Returns whether it was alive.
    pub(super) fn forget(&mut self, now: Timestamp) -> bool {
        let record = self.record.take();
        let is_unreadable = matches!(self.row, Some(Err(_))) && !self.has_changed;
        let is_live = record.as_ref().map_or(is_unreadable, |record| protocol::is_live(record, now));
        self.drop_steps();
        (self.has_changed, self.is_large) = (true, false);
        is_live
    }

    /// Whether the batch inserts a row.
    const fn is_new(&self) -> bool {
        self.row.is_none() && self.record.is_some()
    }

    /// Whether the batch replaces the server's row.
    const fn is_replaced(&self) -> bool {
        self.row.is_some() && self.has_changed && self.record.is_some()
    }

    /// Whether the batch deletes the server's row.
    const fn is_deleted(&self) -> bool {
        self.row.is_some() && self.has_changed && self.record.is_none()
    }
}

/// The statements that write the changes of these entries. New rows are inserted `at_once`: a transaction may have locked the gap that one
/// of them belongs to, and would hold up all.
pub(super) fn writes<'e, 'k: 'e>(
    statements: &Statements,
    at_once: &str,
    entries: impl Iterator<Item = &'e Entry<'k>> + Clone,
) -> Vec<String> {
    let mut texts: Vec<String> = entries.clone().flat_map(|entry| deletions(statements, entry)).collect();
    let rows = |is: fn(&Entry<'k>) -> bool| {
        let rows = entries.clone().filter(move |entry| is(entry));
        rows.filter_map(|entry| Some((entry.key, entry.record.as_ref()?)))
    };
    if rows(Entry::is_new).next().is_some() {
        texts.push(at_once.to_owned() + &statements.insert(rows(Entry::is_new)));
    }
    if rows(Entry::is_replaced).next().is_some() {
        texts.push(statements.replace(rows(Entry::is_replaced)));
    }
    for entry in entries.filter(|entry| entry.is_new() || entry.is_replaced()) {
        let steps = entry.appended.iter();
        texts.extend(steps.map(|(position, step)| statements.append(entry.key, *position, step)));
    }
    texts
}

/// The statements that delete a record, or its steps.
fn deletions(statements: &Statements, entry: &Entry<'_>) -> Vec<String> {
    let (scope, key) = (entry.key.scope().as_str().as_bytes(), entry.key.key().as_str().as_bytes());
    let has_steps = entry.steps > 0 || matches!(entry.row, Some(Err(_)));
    let mut texts = Vec::new();
    if entry.row.is_some() && entry.has_changed && entry.without_steps && has_steps {
        texts.push(statements.delete_steps(scope, key));
    }
    if entry.is_deleted() {
        texts.push(statements.delete(scope, key));
    }
    texts
}
