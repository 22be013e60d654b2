//! A transition of the protocol as conditional writes: guess the item, write on the condition that the guess is right,
//! and if it is wrong, decide again with the item that the refusal returns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::RequestId;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure as OnFailure};

use super::failure::failure;
use super::item::{self, Seen};
use super::names::{Item, Names};
use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::protocol::{Owner, Record, State, Timestamp, Transition, is_live};
use idem_store_kit::retry;

/// The minimum time for which an item stays, expired or not. It has the fence that the next one must exceed, also if
/// the next clock is behind.
const MEMORY_OF_FENCES: Duration = Duration::from_secs(3_600);

/// The table of one store, with its settings.
#[derive(Clone, Debug)]
pub(super) struct Table(pub(super) Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) client: Client,
    pub(super) names: Names,
    pub(super) skew: Duration,
    pub(super) timeout: Duration,
    /// The error for every request, if these names conflict.
    collision: Option<StoreError>,
}

/// The result of a conditional write.
#[expect(clippy::large_enum_variant, reason = "each is matched where it is made")]
pub(super) enum Met {
    /// The guess was right, and the item is written.
    Guessed,
    /// The guess was wrong, and nothing is written. This is what is there.
    Other(Option<Seen>),
}

impl Table {
    pub(super) fn new(client: Client, names: Names, skew: Duration, timeout: Duration) -> Self {
        let collision = names.check_distinct().err();
        Self(Arc::new(Inner { client, names, skew, timeout, collision }))
    }

    /// Fails if two attributes have the same name. It costs nothing, so every operation begins with it.
    pub(super) fn check_names(&self) -> Result<(), StoreError> {
        self.0.collision.clone().map_or(Ok(()), Err)
    }

    /// This machine's time, because DynamoDB has no clock that can be read.
    pub(super) fn now() -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::default().after(since)
    }

    /// The record in an item. The clock skew is added to its lease and its expiry, because the writer's clock may be
    /// behind this one: what is over then is over by every clock.
    pub(super) fn read(&self, item: &Item) -> Result<Seen, StoreError> {
        let mut seen = item::read(&self.0.names, item)?;
        let record = &mut seen.record;
        record.lease_until = record.lease_until.after(self.0.skew);
        record.expires_at = record.expires_at.map(|end| end.after(self.0.skew));
        Ok(seen)
    }

    /// Applies a transition, and reads the item first.
    pub(super) async fn apply<A>(
        &self,
        key: &RecordKey,
        decide: impl Fn(Option<&Record>, Timestamp) -> Transition<A>,
    ) -> Result<A, StoreError> {
        let seen = self.look(key).await?;
        self.apply_from(seen, key, decide).await
    }

    /// Applies a transition, beginning with `seen` as a guess of the item.
    pub(super) async fn apply_from<A>(
        &self,
        mut seen: Option<Seen>,
        key: &RecordKey,
        decide: impl Fn(Option<&Record>, Timestamp) -> Transition<A>,
    ) -> Result<A, StoreError> {
        loop {
            let Transition { write, answer, .. } =
                decide(seen.as_ref().map(|seen| &seen.record), Self::now());
            let Some(record) = write else { return Ok(answer) };
            match self.put(key, seen.as_ref(), &record).await? {
                Met::Guessed => return Ok(answer),
                // The condition was that there is no item.
                Met::Other(None) if seen.is_none() => {
                    return Err(StoreError::configuration(
                        "the endpoint of DynamoDB refuses a write and does not return the item that is there: it must know \
                         `ReturnValuesOnConditionCheckFailure`",
                    ));
                }
                Met::Other(other) => seen = other,
            }
        }
    }

    /// When DynamoDB may delete a record with this expiry, in seconds: when the record is expired by every clock, and a
    /// new fence by any clock exceeds its fence.
    pub(super) fn delete_at(&self, expires_at: Timestamp) -> u64 {
        let over = expires_at.after(self.0.skew.saturating_mul(2));
        over.max(Self::now().after(MEMORY_OF_FENCES)).as_micros().div_ceil(1_000_000)
    }

    async fn put(&self, key: &RecordKey, seen: Option<&Seen>, record: &Record) -> Result<Met, StoreError> {
        let Inner { client, names, .. } = &*self.0;
        let revision = seen.map_or(0, |seen| seen.revision).wrapping_add(1);
        let delete_at = record.expires_at.map(|end| self.delete_at(end));
        let mut item = item::write(names, record, revision, delete_at);
        item.extend(names.primary_key(key));
        let (condition, values) = guard(seen);
        let request = client
            .put_item()
            .table_name(&*names.table)
            .set_item(Some(item))
            .condition_expression(condition)
            .set_expression_attribute_names(Some(names.of(condition)))
            .set_expression_attribute_values(values)
            .return_values_on_condition_check_failure(OnFailure::AllOld);
        self.retried(|| async {
            self.met(request.clone().send().await, |error| match error {
                PutItemError::ConditionalCheckFailedException(refused) => refused.item,
                _ => None,
            })
        })
        .await
    }

    /// The result of a conditional write: if its condition did not hold, the item is in the error.
    pub(super) fn met<A, E: ProvideErrorMetadata + RequestId, R>(
        &self,
        answer: Result<A, SdkError<E, R>>,
        item: impl FnOnce(E) -> Option<Item>,
    ) -> Result<Met, StoreError> {
        match answer {
            Ok(_) => Ok(Met::Guessed),
            Err(SdkError::ServiceError(context)) if is_refused_by_condition(context.err()) => {
                item(context.into_err()).map(|item| self.read(&item)).transpose().map(Met::Other)
            }
            Err(error) => Err(failure(&error)),
        }
    }

    /// Deletes at most `limit` items that are expired by every clock, so that a new fence by any clock exceeds theirs.
    pub(super) async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        let Inner { client, names, skew, .. } = &*self.0;
        let over = item::instant(Self::now().before(skew.saturating_mul(2)));
        let mut pages = client
            .scan()
            .table_name(&*names.table)
            .consistent_read(true)
            .filter_expression(OVER)
            .set_expression_attribute_names(Some(names.of(OVER)))
            .set_expression_attribute_values(Some(over_values(&over)))
            .into_paginator()
            .send();
        let mut deleted = 0;
        while deleted < limit
            && let Some(page) = pages.next().await
        {
            for item in page.map_err(|error| failure(&error))?.items() {
                let Some(key) = names.primary_key_of(item).filter(|_| deleted < limit) else { continue };
                let delete = client
                    .delete_item()
                    .table_name(&*names.table)
                    .set_key(Some(key))
                    .condition_expression(OVER)
                    .set_expression_attribute_names(Some(names.of(OVER)))
                    .set_expression_attribute_values(Some(over_values(&over)));
                match delete.send().await {
                    Ok(_) => deleted += 1,
                    // The record is live again.
                    Err(SdkError::ServiceError(context)) if is_refused_by_condition(context.err()) => {}
                    Err(error) => return Err(failure(&error)),
                }
            }
        }
        Ok(deleted)
    }

    /// Sends one request, and retries until there is an answer.
    pub(super) async fn retried<A, F>(&self, ask: impl FnMut() -> F) -> Result<A, StoreError>
    where
        F: Future<Output = Result<A, StoreError>>,
    {
        retry::retried(self.0.timeout, ask).await
    }

    /// Reads the item of a key.
    pub(super) async fn look(&self, key: &RecordKey) -> Result<Option<Seen>, StoreError> {
        let Inner { client, names, .. } = &*self.0;
        let request = client.get_item().table_name(&*names.table).consistent_read(true);
        let request = request.set_key(Some(names.primary_key(key)));
        let answer =
            self.retried(|| async { request.clone().send().await.map_err(|error| failure(&error)) }).await?;
        answer.item.map(|item| self.read(&item)).transpose()
    }

    /// The live record, with its times as written.
    pub(super) async fn live(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        let Some(Seen { mut record, .. }) = self.look(key).await? else { return Ok(None) };
        if !is_live(&record, Self::now()) {
            return Ok(None);
        }
        record.lease_until = record.lease_until.before(self.0.skew);
        record.expires_at = record.expires_at.map(|end| end.before(self.0.skew));
        Ok(Some(record))
    }

    /// Replaces a live record by an expired one that keeps its fence.
    pub(super) async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        // When the record to forget was created. After a lost answer that record may be gone, and the item may be a
        // newer record, which must stay.
        let meant = AtomicU64::new(0);
        let skew = self.0.skew;
        self.apply(key, |record, now| {
            let made = meant.load(Ordering::Relaxed);
            let keep = |answer| Transition::new(None, answer);
            match record {
                Some(record) if is_live(record, now) => {
                    if ![0, record.created_at.as_micros()].contains(&made) {
                        return keep(true);
                    }
                    meant.store(record.created_at.as_micros(), Ordering::Relaxed);
                    Transition::new(Some(forgotten(record)), true)
                }
                // Expired, but not forgotten and not purged yet.
                Some(record) if made == 0 && record.expires_at.map(|end| end.before(skew)) != Some(NEVER) => {
                    Transition::new(Some(forgotten(record)), false)
                }
                _ => keep(made != 0),
            }
        })
        .await
    }
}

/// The expiry of a forgotten record.
const NEVER: Timestamp = Timestamp::from_micros(0);

/// What stays of a forgotten record: its fence, without its result, steps, fingerprint and owner.
fn forgotten(record: &Record) -> Record {
    record
        .clone()
        .with_state(State::Released)
        .with_owner(Owner::NOBODY)
        .with_fingerprint(None)
        .with_result(None)
        .with_steps(Vec::new())
        .with_completed_at(None)
        .with_expires_at(Some(NEVER))
}

/// The condition that an item is an expired record, and not a forgotten one that keeps its fence. It also requires a
/// fence and a revision, because items of other programs may have an attribute `expires_at` too.
const OVER: &str = "attribute_exists(#fence) AND attribute_exists(#revision) AND \
                    #expires_at > :forgotten AND #expires_at <= :over";

fn over_values(over: &AttributeValue) -> Item {
    [(":over".to_owned(), over.clone()), (":forgotten".to_owned(), item::number(0))].into()
}

fn is_refused_by_condition(error: &impl ProvideErrorMetadata) -> bool {
    error.code() == Some("ConditionalCheckFailedException")
}

/// The condition that the item is still the one that was seen, or that there is none, and its values. It compares both numbers,
/// because a revision is only unique together with its fence: it begins again with a new record.
fn guard(seen: Option<&Seen>) -> (&'static str, Option<Item>) {
    let Some(seen) = seen else { return ("attribute_not_exists(#id)", None) };
    let (fence, revision) = (item::number(seen.record.fence.get()), item::number(seen.revision));
    let values = [(":fence".to_owned(), fence), (":revision".to_owned(), revision)];
    ("#fence = :fence AND #revision = :revision", Some(values.into()))
}
