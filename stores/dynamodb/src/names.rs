//! The names of the attributes in the table, and the key of an item.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use idem_core::StoreError;
use idem_store_kit::cas::ObjectName;

/// The attribute with the record's bytes.
pub(super) const RECORD: &str = "idem_record";

/// The attribute with the revision of the record's bytes.
pub(super) const REVISION: &str = "idem_revision";

pub(super) type Item = HashMap<String, AttributeValue>;

/// The names of a store's table and of its attributes.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) table: String,
    pub(super) partition_key: String,
    /// For a table with a sort key: the name of the sort key, and its value in all records.
    pub(super) sort_key: Option<(String, String)>,
    /// The name of the time-to-live attribute. It contains a time, in seconds since the Unix epoch. DynamoDB
    /// deletes the item after this time.
    pub(super) time_to_live: String,
    /// The prefix of every partition key.
    pub(super) key_prefix: String,
}

impl Names {
    pub(super) fn new(table: &str) -> Self {
        Self {
            table: table.into(),
            partition_key: "id".into(),
            sort_key: None,
            time_to_live: "delete_at".into(),
            key_prefix: String::new(),
        }
    }

    /// Checks that no two attributes have the same name, because one would overwrite the other.
    ///
    /// # Errors
    ///
    /// `Configuration`, with the name that occurs twice.
    pub(super) fn check_distinct(&self) -> Result<(), StoreError> {
        let sort_key = self.sort_key.iter().map(|(name, _)| &**name);
        let mut names: Vec<&str> = sort_key.collect();
        names.extend([&*self.partition_key, &*self.time_to_live, RECORD, REVISION]);
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            None => Ok(()),
            Some(pair) => Err(StoreError::configuration(format!(
                "two attributes have the name `{}`: `partition_key`, `sort_key` and `time_to_live_attribute` must differ \
                 from each other, and from `{RECORD}` and `{REVISION}`",
                pair[0]
            ))),
        }
    }

    /// The text with which all partition keys of a scope begin. `scope` is the scope's encoded name; `None`
    /// means all scopes.
    pub(super) fn beginning(&self, scope: Option<&str>) -> String {
        match scope {
            Some(scope) => format!("{}{scope}#", self.key_prefix),
            None => self.key_prefix.clone(),
        }
    }

    /// The primary key of a record's item.
    pub(super) fn key(&self, name: &ObjectName) -> Item {
        let sort = self.sort_key.as_ref().map(|(_, value)| &**value);
        self.key_of(&format!("{}{}", self.beginning(Some(&name.scope)), name.key), sort.unwrap_or_default())
    }

    /// The primary key with these values. `sort` has no meaning in a table without a sort key.
    pub(super) fn key_of(&self, partition: &str, sort: &str) -> Item {
        let mut key = Item::from([(self.partition_key.clone(), AttributeValue::S(partition.into()))]);
        key.extend(self.sort_key.iter().map(|(name, _)| (name.clone(), AttributeValue::S(sort.into()))));
        key
    }

    /// The values of a primary key: the partition key and the sort key. In a table without a sort key, the
    /// value of the sort key is empty.
    pub(super) fn values<'i>(&self, key: &'i Item) -> Option<(&'i str, &'i str)> {
        let text = |name: &String| key.get(name)?.as_s().ok().map(String::as_str);
        let sort = self.sort_key.as_ref().and_then(|(name, _)| text(name));
        Some((text(&self.partition_key)?, sort.unwrap_or_default()))
    }
}
