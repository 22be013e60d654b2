//! A record as an item, and back. There are no rules and no requests here.

use std::time::Duration;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;

use super::names::{Item, Names};
use idem_core::StoreError;
use idem_core::protocol::{OnCrash, Record, RecordedStep, State, StoredResult, Timestamp, Tombstone};
use idem_store_kit::columns::{self, Columns, Unreadable, Word, number_of};
use idem_store_kit::step_bytes;

/// A record as it was read, with its revision.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) record: Record,
    pub(super) revision: u64,
}

pub(super) fn number(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

pub(super) fn instant(instant: Timestamp) -> AttributeValue {
    number(instant.as_micros())
}

pub(super) fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

pub(super) fn bytes(bytes: &[u8]) -> AttributeValue {
    AttributeValue::B(Blob::new(bytes))
}

/// Microseconds, rounded up as in [`Timestamp::after`].
pub(super) fn micros(duration: Duration) -> AttributeValue {
    number(columns::micros(duration))
}

/// The name and the value of the attribute for a result.
pub(super) fn result(result: &StoredResult) -> (&'static str, AttributeValue) {
    match result {
        StoredResult::Value(value) => ("result", bytes(value)),
        StoredResult::Tombstone(reason) => ("tombstone", text(reason.as_str())),
    }
}

pub(super) fn count(count: usize) -> AttributeValue {
    number(u64::try_from(count).unwrap_or(u64::MAX))
}

pub(super) fn steps(steps: &[RecordedStep]) -> AttributeValue {
    AttributeValue::L(steps.iter().map(|step| bytes(&step_bytes::encode(step))).collect())
}

/// The size of steps in an item.
pub(super) fn size(steps: &[RecordedStep]) -> usize {
    // DynamoDB counts one byte for each element of a list, in addition to its size.
    steps.iter().map(|step| step_bytes::encode(step).len() + 1).sum()
}

/// The attributes of a record without its primary key.
pub(super) fn write(names: &Names, record: &Record, revision: u64, delete_at: Option<u64>) -> Item {
    let mut item = Item::new();
    let mut put = |name: &str, value| item.insert(names.attribute(name).into(), value);
    put("state", text(record.state.as_str()));
    put("owner", bytes(record.owner.as_bytes()));
    put("fence", number(record.fence.get()));
    put("revision", number(revision));
    put("attempt", number(record.attempt.into()));
    put("recovered", AttributeValue::Bool(record.recovered));
    put("on_crash", text(record.on_crash.as_str()));
    put("lease_until", instant(record.lease_until));
    put("retry_at", instant(record.retry_at));
    put("ttl", micros(record.ttl));
    put("created_at", instant(record.created_at));
    if let Some(fingerprint) = &record.fingerprint {
        put("fingerprint", bytes(fingerprint.as_bytes()));
    }
    if let Some(stored) = &record.result {
        let (name, value) = result(stored);
        put(name, value);
    }
    if !record.steps.is_empty() {
        put("steps", steps(&record.steps));
        put("steps_bytes", count(size(&record.steps)));
    }
    if let Some(completed_at) = record.completed_at {
        put("completed_at", instant(completed_at));
    }
    if let Some(expires_at) = record.expires_at {
        put("expires_at", instant(expires_at));
    }
    if let Some(seconds) = delete_at {
        item.insert(names.time_to_live.to_string(), number(seconds));
    }
    item
}

/// The attributes of an item by their names.
struct Attributes<'i> {
    names: &'i Names,
    item: &'i Item,
}

type Read<T> = Result<T, Unreadable>;

impl<'i> Attributes<'i> {
    fn value<T>(
        &self,
        name: &'static str,
        read: impl FnOnce(&'i AttributeValue) -> Option<T>,
    ) -> Read<Option<T>> {
        let value = self.item.get(&*self.names.attribute(name));
        value.map(|value| read(value).ok_or(Unreadable(name))).transpose()
    }

    fn number(&self, name: &'static str) -> Read<Option<u64>> {
        self.value(name, |value| value.as_n().ok()?.parse().ok())
    }

    fn bytes(&self, name: &'static str) -> Read<Option<&'i [u8]>> {
        self.value(name, |value| value.as_b().ok().map(AsRef::as_ref))
    }

    /// The number of a word.
    fn word<W: Word>(
        &self,
        name: &'static str,
        meaning: impl FnOnce(&str) -> Option<W>,
    ) -> Read<Option<u64>> {
        let word = self.value(name, |value| meaning(value.as_s().ok()?))?;
        Ok(word.map(|word| number_of(word).into()))
    }

    fn steps(&self) -> Read<Vec<RecordedStep>> {
        let step =
            |value: &AttributeValue| step_bytes::decode(Bytes::copy_from_slice(value.as_b().ok()?.as_ref()));
        let steps = self.value("steps", |value| value.as_l().ok()?.iter().map(step).collect());
        Ok(steps?.unwrap_or_default())
    }

    fn columns(&self) -> Read<Columns<'i>> {
        Ok(Columns {
            state: self.word("state", State::from_word)?,
            owner: self.bytes("owner")?,
            fence: self.number("fence")?,
            attempt: self.number("attempt")?,
            recovered: self.value("recovered", |value| value.as_bool().ok().copied().map(u64::from))?,
            on_crash: self.word("on_crash", OnCrash::from_word)?,
            lease_until: self.number("lease_until")?,
            retry_at: self.number("retry_at")?,
            ttl: self.number("ttl")?,
            fingerprint: self.bytes("fingerprint")?,
            tombstone: self.word("tombstone", Tombstone::from_word)?,
            created_at: self.number("created_at")?,
            completed_at: self.number("completed_at")?,
            expires_at: self.number("expires_at")?,
            result: self.bytes("result")?,
        })
    }

    fn seen(&self) -> Read<Seen> {
        let revision = self.number("revision")?.ok_or(Unreadable("revision"))?;
        Ok(Seen { record: self.columns()?.record()?.with_steps(self.steps()?), revision })
    }
}

/// The record in an item.
pub(super) fn read(names: &Names, item: &Item) -> Result<Seen, StoreError> {
    Attributes { names, item }.seen().map_err(|Unreadable(name)| {
        StoreError::corrupt_record(format!(
            "the attribute `{name}` of its item is none that this version wrote; forget the key, or find out who \
             wrote it"
        ))
    })
}

/// The record in an item that was read without its value and its steps. The record has an empty value instead.
pub(super) fn read_head(names: &Names, item: &Item) -> Result<Record, Unreadable> {
    let mut columns = Attributes { names, item }.columns()?;
    if columns.completed_at.is_some() && columns.tombstone.is_none() {
        columns.result = Some(&[]);
    }
    columns.record()
}
