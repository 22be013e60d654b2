//! The requests to a table: consistent reads, writes on the condition of a revision, scans.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure as OnFailure};
use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use idem_core::inspection::{Inspection, Standing};
use idem_core::listing::Cursor;
use idem_core::{StoreError, StoreErrorKind};
use idem_store_kit::cas::{CompareAndSwap, Listing, ObjectName, Put, Version};

use super::failure::{MAX_ITEM_BYTES, failure};
use super::names::{Item, Names, RECORD, REVISION};

/// Upper limit in bytes for everything in an item except the record: the key, the revision, the time to live,
/// and the names of all attributes.
const OTHER_BYTES: usize = 6 * 1_024;

const REVISION_BYTES: usize = 16;

pub(super) struct Table {
    pub(super) client: Client,
    pub(super) names: Names,
}

impl Table {
    /// Returns the client for a request, or an error if two attributes have the same name.
    pub(super) fn client(&self) -> Result<&Client, StoreError> {
        self.names.check_distinct().map(|()| &self.client)
    }
}

/// The record's bytes and their revision. If one of the two is missing, the item belongs to another program.
/// Then the returned bytes are empty, so that the store reports a corrupt record.
fn version(item: &Item) -> Version<AttributeValue> {
    let bytes = item.get(RECORD).and_then(|value| value.as_b().ok());
    match (bytes, item.get(REVISION)) {
        (Some(bytes), Some(revision)) => {
            Version { bytes: Bytes::copy_from_slice(bytes.as_ref()), revision: revision.clone() }
        }
        _ => Version { bytes: Bytes::new(), revision: AttributeValue::Null(true) },
    }
}

fn binary(bytes: impl Into<Vec<u8>>) -> AttributeValue {
    AttributeValue::B(Blob::new(bytes))
}

/// The condition that an item has the revision `:seen`.
fn unchanged() -> String {
    format!("{REVISION} = :seen")
}

impl CompareAndSwap for Table {
    type Revision = AttributeValue;

    async fn get(&self, name: &ObjectName) -> Result<Option<Version<AttributeValue>>, StoreError> {
        let request = self.client()?.get_item().table_name(&self.names.table).consistent_read(true);
        let answer = request.set_key(Some(self.names.key(name))).send().await;
        Ok(answer.map_err(|error| failure(&error))?.item.as_ref().map(version))
    }

    async fn put(
        &self,
        name: &ObjectName,
        bytes: Bytes,
        seen: Option<&AttributeValue>,
        keep: Option<Duration>,
    ) -> Result<Put<AttributeValue>, StoreError> {
        let revision = binary(&Sha256::digest(&bytes)[..REVISION_BYTES]);
        let mut item = self.names.key(name);
        item.insert(REVISION.to_owned(), revision.clone());
        item.insert(RECORD.to_owned(), binary(bytes));
        if let Some(keep) = keep {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let seconds = now.saturating_add(keep).as_secs().saturating_add(1);
            item.insert(self.names.time_to_live.clone(), AttributeValue::N(seconds.to_string()));
        }
        let request = self.client()?.put_item().table_name(&self.names.table).set_item(Some(item));
        let request = match seen {
            Some(seen) => {
                request.condition_expression(unchanged()).expression_attribute_values(":seen", seen.clone())
            }
            // The condition is that no item has this key. The condition that the item has no revision would
            // allow the request to overwrite an item of another program.
            None => request
                .condition_expression("attribute_not_exists(#id)")
                .expression_attribute_names("#id", &self.names.partition_key),
        };
        match request.return_values_on_condition_check_failure(OnFailure::AllOld).send().await {
            Ok(_) => Ok(Put::Written(revision)),
            Err(error) => match error.as_service_error() {
                Some(PutItemError::ConditionalCheckFailedException(refused)) => {
                    Ok(Put::Refused(refused.item.as_ref().map(version)))
                }
                _ => Err(failure(&error)),
            },
        }
    }

    async fn delete(&self, name: &ObjectName, seen: &AttributeValue) -> Result<bool, StoreError> {
        let request = self.client()?.delete_item().table_name(&self.names.table);
        let request = request.set_key(Some(self.names.key(name))).condition_expression(unchanged());
        match request.expression_attribute_values(":seen", seen.clone()).send().await {
            Ok(_) => Ok(true),
            Err(error) => match error.as_service_error() {
                Some(DeleteItemError::ConditionalCheckFailedException(_)) => Ok(false),
                _ => Err(failure(&error)),
            },
        }
    }

    async fn list(
        &self,
        scope: Option<&str>,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Listing<AttributeValue>, StoreError> {
        let names = &self.names;
        let after = after.map(|after| {
            let cursor = Cursor::from_bytes(after.to_vec());
            let key = cursor.key().map(|(partition, sort)| names.key_of(partition, sort));
            key.ok_or_else(|| StoreError::configuration("the place to go on from is not one of this store's"))
        });
        let mut scan = self.client()?.scan().table_name(&names.table).consistent_read(true);
        let mut filter = format!("attribute_exists({RECORD})");
        let beginning = names.beginning(scope);
        if !beginning.is_empty() {
            filter += " AND begins_with(#id, :beginning)";
            scan = scan
                .expression_attribute_names("#id", &names.partition_key)
                .expression_attribute_values(":beginning", AttributeValue::S(beginning));
        }
        if let Some((name, value)) = &names.sort_key {
            filter += " AND #sort = :sort";
            scan = scan
                .expression_attribute_names("#sort", name)
                .expression_attribute_values(":sort", AttributeValue::S(value.clone()));
        }
        let scan = scan
            .filter_expression(filter)
            .set_exclusive_start_key(after.transpose()?)
            .limit(i32::try_from(limit).unwrap_or(i32::MAX));
        let answer = scan.send().await.map_err(|error| failure(&error))?;
        let next = answer.last_evaluated_key().and_then(|key| names.values(key));
        let next = next.map(|(partition, sort)| Cursor::behind_name(partition, sort).as_bytes().to_vec());
        Ok(Listing { versions: answer.items().iter().map(version).collect(), next })
    }

    /// If the table does not fit, or this client may not use it, reports this as a finding. If DynamoDB does
    /// not answer, returns an error.
    async fn inspect(&self) -> Result<Inspection, StoreError> {
        let mut inspection = Inspection::of("DynamoDB");
        if let Err(error) = self.names.check_distinct() {
            inspection.find(Standing::Broken, "attributes", error.to_string());
            return Ok(inspection);
        }
        match self.check().await {
            Ok(()) => {
                inspection.find(Standing::Fine, "key", "as the store was told");
                inspection.find(
                    Standing::Fine,
                    "time to live",
                    "on, for the attribute that the store writes",
                );
            }
            Err(error) if error.kind() == StoreErrorKind::Configuration => {
                inspection.find(Standing::Weak, "table", error.to_string());
            }
            Err(error) => return Err(error),
        }
        Ok(inspection)
    }

    fn max_bytes(&self) -> usize {
        MAX_ITEM_BYTES - OTHER_BYTES
    }
}
