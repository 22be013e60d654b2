//! The names of attributes in the table, and the key of an item.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use idem_core::StoreError;
use idem_core::listing;
use idem_core::{RecordKey, Scope};

/// The characters of a scope that are encoded, so that another scope and key cannot give the same text. All others stay
/// readable.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%').add(b'#');

/// The longest possible partition key, in bytes.
const LONGEST_ID: usize = 2_048;

/// The attributes of a record, without the prefix. [`check_distinct`](Names::check_distinct) only finds a conflict with
/// an attribute that is in this list.
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

/// An item, in the client's type.
pub(super) type Item = HashMap<String, AttributeValue>;

/// The names of one store's table.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) table: Arc<str>,
    pub(super) partition_key: Arc<str>,
    /// For a table with a sort key: its name, and its value in all records.
    pub(super) sort_key: Option<(Arc<str>, Arc<str>)>,
    /// The time-to-live attribute, by which DynamoDB deletes: seconds since the Unix epoch.
    pub(super) time_to_live: Arc<str>,
    /// The prefix of the names of the other attributes.
    pub(super) attribute_prefix: Arc<str>,
    /// The prefix of every partition key.
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

    /// The name in the table of an attribute of a record.
    pub(super) fn attribute<'n>(&self, name: &'n str) -> Cow<'n, str> {
        match &*self.attribute_prefix {
            "" => name.into(),
            prefix => [prefix, name].concat().into(),
        }
    }

    /// The names in the table of all attributes that an expression mentions, which it does as `#name`.
    pub(super) fn of(&self, expression: &str) -> HashMap<String, String> {
        let is_behind = |letter: char| !letter.is_ascii_alphanumeric() && letter != '_';
        let mentioned = expression.split('#').skip(1).filter_map(|text| text.split(is_behind).next());
        mentioned.map(|name| (format!("#{name}"), self.mentioned(name).into_owned())).collect()
    }

    fn mentioned<'n>(&'n self, name: &'n str) -> Cow<'n, str> {
        match (name, &self.sort_key) {
            ("id", _) => (&*self.partition_key).into(),
            ("sort", Some((sort_key, _))) => (&**sort_key).into(),
            ("delete_at", _) => (&*self.time_to_live).into(),
            _ => self.attribute(name),
        }
    }

    /// Whether the attribute with this name is part of the record.
    pub(super) fn is_of_record(&self, name: &str) -> bool {
        name.strip_prefix(&*self.attribute_prefix).is_some_and(|name| ATTRIBUTES.contains(&name))
    }

    /// Checks that no two attributes have the same name, because one would overwrite the other.
    ///
    /// # Errors
    ///
    /// `Configuration`, with the setting that must change.
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

    /// The record with this partition key, if it is the key of a record.
    pub(super) fn key(&self, id: &str) -> Option<RecordKey> {
        let (scope, key) = id.strip_prefix(&*self.key_prefix)?.split_once('#')?;
        let key = listing::name(&percent_decode_str(scope).decode_utf8().ok()?, key)?;
        // A key that this store would write differently belongs to another program.
        (self.id(&key) == id).then_some(key)
    }

    /// The common beginning of the partition keys of all records, or of those in a scope.
    pub(super) fn beginning(&self, scope: Option<&Scope>) -> String {
        let scope = scope.map(|scope| format!("{}#", utf8_percent_encode(scope.as_str(), ESCAPED)));
        format!("{}{}", self.key_prefix, scope.unwrap_or_default())
    }

    /// Checks that the key is not too long for DynamoDB.
    ///
    /// # Errors
    ///
    /// `Configuration`, because the scope or the prefix must change.
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

    /// The primary key of an item, if the item belongs to this store.
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
