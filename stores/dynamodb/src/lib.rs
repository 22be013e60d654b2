//! Records in a DynamoDB table.
//!
//! Owns the requests, and the use of a declared clock skew, because DynamoDB has no clock that can be read. The rules
//! are the protocol's own functions, applied to the item that a refused conditional write returns.

mod builder;
mod failure;
mod inspection;
mod item;
mod listing;
mod names;
mod table;
mod transition;
mod updates;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use aws_sdk_dynamodb::Client;

use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::inspection::Inspection;
use idem_core::listing::{List, Page};
use idem_core::protocol::{Answer, ClaimAnswer, OnCrash, Record, Request};
use idem_core::{Store, Waiters};
use idem_store_kit::hints::Hints;
use idem_store_kit::own_runtime;

pub use builder::DynamoDbStoreBuilder;
use transition::Table;

/// The largest result: an item has at most 400 KiB with all its attributes, and those other than the result have less
/// than 8 KiB.
const MAX_RESULT_BYTES: usize = failure::MAX_ITEM_BYTES - 8 * 1_024;

/// A store in a DynamoDB table. Feature `dynamodb`.
///
/// A first call writes twice (claim, complete), and once for each step and each renewal. A replay is a read where this
/// process saw the result, and else one refused conditional write, as a busy answer is: DynamoDB charges that as a write of
/// the whole item. All steps of a record together have the room of one result. Releasing, taking over and renewing under
/// `on_crash = "in_doubt"` read or are refused once and then write.
///
/// # Clock
///
/// DynamoDB has no clock that a condition can use. The store uses the clocks of the calling machines for leases and
/// expiry. They must not differ by more than the declared [`clock_skew`](DynamoDbStoreBuilder::clock_skew), which is
/// added before a lease counts as over or a record as expired. If they differ by more, another worker may take over the
/// claim of a live worker early. The late result of that live worker is still refused, because `complete` checks owner
/// and fence.
///
/// # Runtime
///
/// The connections are driven by a separate thread, which also renews and releases, so that a body that blocks its thread
/// keeps its lease. Claims, steps and results are requests of the caller's own task. Pass in a client whose connections
/// nothing else uses.
#[derive(Clone)]
pub struct DynamoDbStore {
    table: Table,
    /// Keys of which this process saw a result.
    hints: Arc<Hints>,
    /// Keys that this process claimed so that their records have no end.
    without_end: Arc<Hints>,
    waiters: Waiters,
}

impl DynamoDbStore {
    /// A store in this table, with the partition key `id` and all other defaults. This makes no request to DynamoDB;
    /// [`check`](Self::check) does.
    #[must_use]
    pub fn new(client: Client, table: &str) -> Self {
        Self::builder(client, table).build()
    }

    /// The same, with settings.
    pub fn builder(client: Client, table: &str) -> DynamoDbStoreBuilder {
        DynamoDbStoreBuilder::new(client, table)
    }

    /// Runs `work` on the stores' own thread.
    fn ask<A, F>(&self, work: impl FnOnce(Table) -> F) -> impl Future<Output = Result<A, StoreError>> + Send
    where
        A: Send + 'static,
        F: Future<Output = Result<A, StoreError>> + Send + 'static,
    {
        own_runtime::apart(self.in_time(work(self.table.clone())))
    }

    /// `work`, but for at most the operation timeout.
    fn in_time<A, F: Future<Output = Result<A, StoreError>>>(
        &self,
        work: F,
    ) -> Pin<Box<impl Future<Output = Result<A, StoreError>> + use<A, F>>> {
        let (checked, time) = (self.table.check_names(), self.table.0.timeout);
        Box::pin(async move {
            checked?;
            let late = |_| StoreError::outcome_unknown(format!("no answer within {time:?}"));
            tokio::time::timeout(time, work).await.map_err(late)?
        })
    }
}

impl Store for DynamoDbStore {
    async fn apply(&self, key: &RecordKey, request: Request) -> Result<Answer, StoreError> {
        request.check_size(MAX_RESULT_BYTES)?;
        let mark = self.hints.mark(key);
        let (has_result, has_no_end) = (self.hints.has(mark), self.without_end.has(mark));
        let becomes_endless = matches!(&request, Request::Claim(claim) if claim.on_crash == OnCrash::InDoubt);
        let (table, key) = (self.table.clone(), key.clone());
        let counts_for_others = matches!(request, Request::Renew(_) | Request::Release(_));
        let work = self.in_time(async move { table.request(&key, &request, has_result, has_no_end).await });
        let answer = match counts_for_others {
            true => own_runtime::apart(work).await?,
            false => own_runtime::entered(work).await?,
        };
        self.hints.saw(mark, &answer);
        match &answer {
            Answer::Claim(ClaimAnswer::Granted(_)) if becomes_endless => self.without_end.put(mark),
            Answer::Claim(_) => self.without_end.take(mark),
            _ => {}
        }
        Ok(answer)
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        let key = key.clone();
        self.ask(|table| async move { table.forget(&key).await }).await
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        own_runtime::entered(self.in_time(self.table.live(key))).await
    }

    /// Reads the whole table and deletes the expired items that DynamoDB's own time to live has not deleted yet. It is
    /// never necessary, and costs as much and takes as long as a scan.
    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        self.table.check_names()?;
        let table = self.table.clone();
        own_runtime::apart(Box::pin(async move { table.purge(limit).await })).await
    }

    /// Scans the table, which costs one read unit for each 4 KiB that it reads.
    async fn list(&self, request: &List) -> Result<Page, StoreError> {
        let request = request.clone();
        self.ask(|table| async move { table.list(&request).await }).await
    }

    async fn inspect(&self) -> Result<Inspection, StoreError> {
        inspection::look(self).await
    }

    fn max_result_bytes(&self) -> Option<usize> {
        Some(MAX_RESULT_BYTES)
    }

    fn waiters(&self) -> &Waiters {
        &self.waiters
    }
}

impl fmt::Debug for DynamoDbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamoDbStore").field("table", &self.table.0.names.table).finish_non_exhaustive()
    }
}
