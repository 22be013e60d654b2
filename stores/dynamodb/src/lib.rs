//! Records in a DynamoDB table.
//!
//! Owns the requests and the table. [`idem_store_kit::cas`] decides about each operation, takes the declared
//! clock skew into account, and retries.

mod builder;
mod failure;
mod items;
mod names;
mod table;

use std::fmt;
use std::sync::Arc;

use aws_sdk_dynamodb::Client;

use idem_store_kit::cas::CasStore;

pub use builder::DynamoDbStoreBuilder;
use items::Table;

/// A store in a DynamoDB table. Feature `dynamodb`.
///
/// The first call of a key writes twice (claim, complete), and once more for each step and each renewal. A
/// replay is one read if the process expects a result, otherwise one refused conditional write. The process
/// remembers up to 8,192 keys with a result, and expects a result for each of them. For other keys, it
/// expects a result if most of its recent claims of such keys found a result. A busy answer costs the same as
/// a replay. DynamoDB charges a refused write as a write of the whole item. All steps of a record together
/// have the size limit of one result.
///
/// `list` and `purge` scan the table, which costs one read unit for each 4 KiB that they read. `purge` is
/// never necessary: it deletes expired items that DynamoDB's own time to live has not deleted yet.
///
/// # Clock
///
/// DynamoDB has no clock that a condition can use. The store uses the clocks of the calling machines for
/// leases and expiry. These clocks must not differ by more than the declared
/// [`clock_skew`](DynamoDbStoreBuilder::clock_skew). The store adds this time to the end of each lease and to
/// the expiry of each record. If the clocks differ by more, another worker may take over the claim of a live
/// worker early. The late result of that live worker is still refused, because `complete` checks owner and
/// fence.
///
/// # Runtime
///
/// A separate thread drives the connections, and sends the renewals and releases. So a body keeps its lease
/// even if it blocks its thread. The caller's own task sends claims, steps and results. Pass in a client
/// whose connections nothing else uses, because a connection belongs to the thread that opened it.
#[derive(Clone)]
pub struct DynamoDbStore(Arc<CasStore<Table>>);

idem_store_kit::store_by!(DynamoDbStore, 0);

impl DynamoDbStore {
    /// A store in this table, with the partition key `id` and all other defaults. This makes no request to
    /// DynamoDB; [`check`](Self::check) does.
    #[must_use]
    pub fn new(client: Client, table: &str) -> Self {
        Self::builder(client, table).build()
    }

    /// Sets up a store in this table, with other settings.
    pub fn builder(client: Client, table: &str) -> DynamoDbStoreBuilder {
        DynamoDbStoreBuilder::new(client, table)
    }
}

impl fmt::Debug for DynamoDbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = &self.0.service.names.table;
        f.debug_struct("DynamoDbStore").field("table", table).finish_non_exhaustive()
    }
}
