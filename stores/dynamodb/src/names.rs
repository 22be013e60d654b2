//! What things are called in the table: attributes, and the key of an item.

use std::collections::HashMap;
use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use idem_core::StoreError;
use idem_core::listing;
use idem_core::{RecordKey, Scope};

/// What would let a scope and a key be taken for others; the rest stays as a person reads it.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%').add(b'#');

/// The longest partition key there is, in bytes.
const LONGEST_ID: usize = 2_048;

/// The attributes of a record, without the prefix. One that is missing here could be given the name of another.
pub(super) const ATTRIBUTES: [&str; 18] = [
    "state",
    "owner",
    "fence",
    "revision",
    "attempt",
    "recovered",
    "on_crash",
    "lease_until",
    "retry_at",
    "ttl",
    "created_at",
    "fingerprint",
    "result",
    "tombstone",
    "steps",
    "steps_bytes",
    "completed_at",
    "expires_at",
];

/// An item, as the client has it.
pub(super) type Item = HashMap<String, AttributeValue>;

/// The names of one store's table.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) table: Arc<str>,
    pub(super) partition_key: Arc<str>,
    /// A table with a sort key: its name, and the value that all records have there.
    pub(super) sort_key: Option<(Arc<str>, Arc<str>)>,
    /// The attribute by which DynamoDB deletes: seconds since the Unix epoch.
    pub(super) time_to_live: Arc<str>,
    /// What the names of the other attributes begin with.
    pub(super) attribute_prefix: Arc<str>,
    /// What every partition key begins with.
    pub(super) key_prefix: Arc<str>,
}

impl Names {
    pub(super) fn new(table: &str) -> Self {
        Self {
            table: table.into(),
            partition_key: "id".into(),
            sort_key: None,
            time_to_live: "delete_at".into(),
            attribute_prefix: "".into(),
            key_prefix: "".into(),
        }
    }

    /// The name in the table of one of a record's attributes.
    pub(super) fn attribute(&self, name: &str) -> String {
        format!("{}{name}", self.attribute_prefix)
    }

    /// Whether an attribute of this name holds a part of the record.
    pub(super) fn is_of_record(&self, name: &str) -> bool {
        name.strip_prefix(&*self.attribute_prefix).is_some_and(|name| ATTRIBUTES.contains(&name))
    }

    /// Checks that no two attributes have one name: one would overwrite the other.
    ///
    /// # Errors
    ///
    /// `Configuration`, with the setting to change.
    pub(super) fn check_distinct(&self) -> Result<(), StoreError> {
        let sort_key = self.sort_key.as_ref().map(|(name, _)| ("sort_key", &**name));
        let time_to_live = Some(("time_to_live_attribute", &*self.time_to_live));
        let partition_key = Some(("partition_key", &*self.partition_key));
        let settings: Vec<_> = [partition_key, sort_key, time_to_live].into_iter().flatten().collect();
        for (number, (setting, name)) in settings.iter().enumerate() {
            if self.is_of_record(name) {
                return Err(StoreError::configuration(format!(
                    "`{setting}` is `{name}`, and an attribute of the record has this name too; set \
                     `attribute_prefix`, or use a table with another name for its {setting}"
                )));
            }
            if let Some((other, _)) = settings[..number].iter().find(|(_, other)| other == name) {
                return Err(StoreError::configuration(format!(
                    "`{other}` and `{setting}` are both `{name}`; each needs a name of its own"
                )));
            }
        }
        Ok(())
    }

    fn id(&self, key: &RecordKey) -> String {
        let scope = utf8_percent_encode(key.scope().as_str(), ESCAPED);
        format!("{}{scope}#{}", self.key_prefix, key.key().as_str())
    }

    /// The record of an item with this partition key, if it is the key of one.
    pub(super) fn key(&self, id: &str) -> Option<RecordKey> {
        let (scope, key) = id.strip_prefix(&*self.key_prefix)?.split_once('#')?;
        let key = listing::name(&percent_decode_str(scope).decode_utf8().ok()?, key)?;
        // What was not written like this is somebody else's.
        (self.id(&key) == id).then_some(key)
    }

    /// What the partition keys of all records begin with, or of those in a scope.
    pub(super) fn beginning(&self, scope: Option<&Scope>) -> String {
        let scope = scope.map(|scope| format!("{}#", utf8_percent_encode(scope.as_str(), ESCAPED)));
        format!("{}{}", self.key_prefix, scope.unwrap_or_default())
    }

    /// That DynamoDB takes a key so long.
    ///
    /// # Errors
    ///
    /// `Configuration`, as that is for the scope and the prefix to change.
    pub(super) fn check(&self, key: &RecordKey) -> Result<(), StoreError> {
        let bytes = self.id(key).len();
        if bytes <= LONGEST_ID {
            return Ok(());
        }
        Err(StoreError::configuration(format!(
            "prefix, scope and key are {bytes} bytes together and DynamoDB takes {LONGEST_ID}; use a shorter prefix, \
             or a scope of ASCII letters"
        )))
    }

    /// The primary key of the item of `key`.
    pub(super) fn primary_key(&self, key: &RecordKey) -> Item {
        let id = self.id(key);
        let mut item = Item::from([(self.partition_key.to_string(), AttributeValue::S(id))]);
        if let Some((name, value)) = &self.sort_key {
            item.insert(name.to_string(), AttributeValue::S(value.to_string()));
        }
        item
    }

    /// The primary key of an item, if the item is of this store.
    pub(super) fn primary_key_of(&self, item: &Item) -> Option<Item> {
        let id = item.get(&*self.partition_key)?;
        if !id.as_s().is_ok_and(|id| id.starts_with(&*self.key_prefix)) {
            return None;
        }
        let mut key = Item::from([(self.partition_key.to_string(), id.clone())]);
        if let Some((name, value)) = &self.sort_key {
            let sort = item.get(&**name).filter(|sort| sort.as_s().is_ok_and(|sort| **sort == **value))?;
            key.insert(name.to_string(), sort.clone());
        }
        Some(key)
    }
}
