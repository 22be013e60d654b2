//! The settings of a store in a DynamoDB table.

use std::fmt;
use std::time::Duration;

use aws_sdk_dynamodb::Client;

use super::DynamoDbStore;
use super::items::Table;
use super::names::Names;
use idem_core::StoreError;
use idem_store_kit::cas::{CasSettings, CasStore};

/// The settings for a new [`DynamoDbStore`].
#[derive(Clone)]
#[must_use]
pub struct DynamoDbStoreBuilder {
    client: Client,
    names: Names,
    settings: CasSettings,
}

impl DynamoDbStoreBuilder {
    pub(super) fn new(client: Client, table: &str) -> Self {
        Self { client, names: Names::new(table), settings: CasSettings::default() }
    }

    /// The name of the partition key; `id` unless set. The type of the key must be string.
    pub fn partition_key(mut self, name: &str) -> Self {
        self.names.partition_key = name.into();
        self
    }

    /// For a table with a sort key: the name of the sort key, and its value in all items of this store. The
    /// type of the sort key must be string.
    pub fn sort_key(mut self, name: &str, value: &str) -> Self {
        self.names.sort_key = Some((name.into(), value.into()));
        self
    }

    /// The name of the time-to-live attribute; `delete_at` unless set. The store writes a time into it, in
    /// seconds since the Unix epoch. DynamoDB deletes the item after this time.
    pub fn time_to_live_attribute(mut self, name: &str) -> Self {
        self.names.time_to_live = name.into();
        self
    }

    /// The prefix of every partition key; none unless set. Two stores in one table share no records if
    /// neither prefix begins with the other.
    pub fn key_prefix(mut self, prefix: &str) -> Self {
        self.names.key_prefix = prefix.into();
        self
    }

    /// How much the clocks of the calling machines may differ; 1 s unless set. Another worker can take over a
    /// claim only when this time has passed after the end of the claim's lease. The `retry_after` of a busy
    /// answer is longer by this time, too.
    pub const fn clock_skew(mut self, skew: Duration) -> Self {
        self.settings.clock_skew = skew;
        self
    }

    /// How long one operation may take, with all its requests and retries; 5 s unless set. After this time,
    /// the operation fails, and its outcome may be unknown.
    pub const fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.settings.operation_timeout = timeout;
        self
    }

    /// Builds the store without a request to DynamoDB, so that a cold start needs no request.
    /// [`connect`](Self::connect) also checks the table.
    #[must_use]
    pub fn build(self) -> DynamoDbStore {
        let Self { client, names, settings } = self;
        DynamoDbStore(CasStore::new(Table { client, names }, settings))
    }

    /// Builds the store and checks that the table fits: see [`DynamoDbStore::check`].
    ///
    /// # Errors
    ///
    /// As [`DynamoDbStore::check`].
    pub async fn connect(self) -> Result<DynamoDbStore, StoreError> {
        let store = self.build();
        store.check().await?;
        Ok(store)
    }
}

impl fmt::Debug for DynamoDbStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamoDbStoreBuilder").field("table", &self.names.table).finish_non_exhaustive()
    }
}
