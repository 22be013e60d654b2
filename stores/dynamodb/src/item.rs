//! A record as an item, and back. There are no rules and no requests here.

use std::time::Duration;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;

use super::names::{Item, Names};
use idem_core::StoreError;
use idem_core::protocol::{
    Fence, Fingerprint, OnCrash, Owner, Record, RecordedStep, State, StoredResult, Timestamp, Tombstone,
};
use idem_core::support::step_bytes;

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
    number(u64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX))
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

/// One attribute of an item.
struct Attribute<'i> {
    name: &'static str,
    value: Option<&'i AttributeValue>,
}

impl<'i> Attribute<'i> {
    fn unreadable(&self) -> StoreError {
        let name = self.name;
        StoreError::corrupt_record(format!(
            "the attribute `{name}` of its item is none that this version wrote; forget the key, or find out who \
             wrote it"
        ))
    }

    fn optional_number(&self) -> Result<Option<u64>, StoreError> {
        let number = |value: &AttributeValue| value.as_n().ok()?.parse().ok();
        self.value.map(|value| number(value).ok_or_else(|| self.unreadable())).transpose()
    }

    fn number(&self) -> Result<u64, StoreError> {
        self.optional_number()?.ok_or_else(|| self.unreadable())
    }

    fn instant(&self) -> Result<Timestamp, StoreError> {
        self.number().map(Timestamp::from_micros)
    }

    fn optional_instant(&self) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.optional_number()?.map(Timestamp::from_micros))
    }

    fn bytes(&self) -> Result<Option<&'i [u8]>, StoreError> {
        let bytes =
            |value: &'i AttributeValue| value.as_b().map(AsRef::as_ref).map_err(|_| self.unreadable());
        self.value.map(bytes).transpose()
    }

    fn array<const N: usize>(&self) -> Result<Option<[u8; N]>, StoreError> {
        let array = |bytes| <[u8; N]>::try_from(bytes).map_err(|_| self.unreadable());
        self.bytes()?.map(array).transpose()
    }

    fn word<T>(&self, meaning: impl FnOnce(&str) -> Option<T>) -> Result<T, StoreError> {
        let word = self.value.and_then(|value| value.as_s().ok());
        word.and_then(|word| meaning(word)).ok_or_else(|| self.unreadable())
    }

    fn steps(&self) -> Result<Vec<RecordedStep>, StoreError> {
        let Some(value) = self.value else { return Ok(Vec::new()) };
        let step = |value: &AttributeValue| {
            let bytes = value.as_b().ok()?;
            step_bytes::decode(Bytes::copy_from_slice(bytes.as_ref()))
        };
        let steps = value.as_l().map_err(|_| self.unreadable())?;
        steps.iter().map(|value| step(value).ok_or_else(|| self.unreadable())).collect()
    }

    fn truth(&self) -> Result<bool, StoreError> {
        let truth = self.value.and_then(|value| value.as_bool().ok()).copied();
        truth.ok_or_else(|| self.unreadable())
    }
}

/// The record in an item.
pub(super) fn read(names: &Names, item: &Item) -> Result<Seen, StoreError> {
    let get = |name: &'static str| Attribute { name, value: item.get(&*names.attribute(name)) };
    let result = read_result(&get("result"), &get("tombstone"))?;
    read_with(names, item, result)
}

/// The record in an item that was read without its value. The record has an empty value instead.
pub(super) fn read_head(names: &Names, item: &Item) -> Result<Record, StoreError> {
    let get = |name: &'static str| Attribute { name, value: item.get(&*names.attribute(name)) };
    let absent = Attribute { name: "result", value: None };
    let mut result = read_result(&absent, &get("tombstone"))?;
    let state = get("state").word(State::from_word)?;
    if result.is_none() && matches!(state, State::Completed | State::Failed) {
        result = Some(StoredResult::Value(Bytes::new()));
    }
    read_with(names, item, result).map(|seen| seen.record)
}

fn read_with(names: &Names, item: &Item, result: Option<StoredResult>) -> Result<Seen, StoreError> {
    let get = |name: &'static str| Attribute { name, value: item.get(&*names.attribute(name)) };
    let state = get("state").word(State::from_word)?;
    let (owner, attempt) = (get("owner"), get("attempt"));
    let completed_at = get("completed_at").optional_instant()?;
    let terminal = matches!(state, State::Completed | State::Failed);
    if result.is_some() != terminal || completed_at.is_some() != terminal {
        return Err(get("result").unreadable());
    }
    // A version without steps does not remove them when it records a result.
    let keeps_steps = !terminal || result == Some(StoredResult::Tombstone(Tombstone::Exhausted));
    let steps = if keeps_steps { get("steps").steps()? } else { Vec::new() };
    let record = Record::new(
        state,
        Owner::from_bytes(owner.array()?.ok_or_else(|| owner.unreadable())?),
        Fence::new(get("fence").number()?),
    )
    .with_attempt(u32::try_from(attempt.number()?).map_err(|_| attempt.unreadable())?)
    .with_recovered(get("recovered").truth()?)
    .with_on_crash(get("on_crash").word(OnCrash::from_word)?)
    .with_lease_until(get("lease_until").instant()?)
    .with_retry_at(get("retry_at").instant()?)
    .with_ttl(Duration::from_micros(get("ttl").number()?))
    .with_fingerprint(get("fingerprint").array()?.map(Fingerprint::from_bytes))
    .with_result(result)
    .with_steps(steps)
    .with_created_at(get("created_at").instant()?)
    .with_completed_at(completed_at)
    .with_expires_at(get("expires_at").optional_instant()?);
    Ok(Seen { record, revision: get("revision").number()? })
}

fn read_result(bytes: &Attribute<'_>, tombstone: &Attribute<'_>) -> Result<Option<StoredResult>, StoreError> {
    match (bytes.bytes()?, tombstone.value) {
        (None, None) => Ok(None),
        (Some(bytes), None) => Ok(Some(StoredResult::Value(Bytes::copy_from_slice(bytes)))),
        (None, Some(_)) => Ok(Some(StoredResult::Tombstone(tombstone.word(Tombstone::from_word)?))),
        (Some(_), Some(_)) => Err(tombstone.unreadable()),
    }
}
