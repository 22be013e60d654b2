//! Records in a DynamoDB table.
//!
//! Owns the requests and the judgement by a declared clock skew, for DynamoDB has no clock to judge by.
//! The rules are the protocol's own functions, applied to what a refused conditional write gives back.

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

use aws_sdk_dynamodb::Client;

use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::inspection::Inspection;
use idem_core::listing::{List, Page};
use idem_core::protocol::{
    self, Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Record, RecordStep, RecordStepAnswer, Release,
    ReleaseAnswer, Renew, RenewAnswer, Resolution, ResolveAnswer, StoredResult,
};
use idem_core::support::own_runtime;
use idem_core::{Store, Waiters};

pub use builder::DynamoDbStoreBuilder;
use transition::Table;

/// The largest result: an item has 400 KiB for all its attributes, and what is not the result is
/// below 8 KiB.
const MAX_RESULT_BYTES: usize = failure::MAX_ITEM_BYTES - 8 * 1_024;

/// A store in a DynamoDB table. Feature `dynamodb`.
///
/// A first call writes twice (claim, complete) and once for each step, a replay or a busy answer is one
/// refused conditional write. All steps of a record together have the room of one result. Renewing, releasing and taking over read or are refused once and then write.
///
/// # Clock
///
/// DynamoDB has no clock that a condition could ask. Leases and expiry are judged by the clocks of the
/// machines that call, which must not differ by more than the declared
/// [`clock_skew`](DynamoDbStoreBuilder::clock_skew): that much is added before a lease counts as over or
/// a record as expired. If they differ by more, a live worker's claim may be taken over early; its late
/// result is still refused, since complete is guarded by owner and fence.
///
/// # Runtime
///
/// Requests are made on a thread of the stores' own, so that a body that blocks its thread keeps its
/// lease. Give the store a client whose connections nobody else uses.
#[derive(Clone)]
pub struct DynamoDbStore {
    table: Table,
    waiters: Waiters,
}

impl DynamoDbStore {
    /// A store in this table, with the partition key `id` and every other default. It makes no request to
    /// DynamoDB: [`check`](Self::check) does.
    #[must_use]
    pub fn new(client: Client, table: &str) -> Self {
        Self::builder(client, table).build()
    }

    /// The same, with choices.
    pub fn builder(client: Client, table: &str) -> DynamoDbStoreBuilder {
        DynamoDbStoreBuilder::new(client, table)
    }

    /// Does `work` on the stores' own thread, for no longer than an operation may take.
    async fn ask<A, F>(&self, work: impl FnOnce(Table) -> F) -> Result<A, StoreError>
    where
        A: Send + 'static,
        F: Future<Output = Result<A, StoreError>> + Send + 'static,
    {
        self.table.check_names()?;
        let time = self.table.timeout();
        let work = Box::pin(work(self.table.clone()));
        own_runtime::apart(async move {
            let late = |_| StoreError::outcome_unknown(format!("no answer within {time:?}"));
            tokio::time::timeout(time, work).await.map_err(late)?
        })
        .await
    }
}

fn check_size(result: &StoredResult) -> Result<(), StoreError> {
    match result {
        StoredResult::Value(bytes) if bytes.len() > MAX_RESULT_BYTES => {
            Err(StoreError::too_large(bytes.len(), MAX_RESULT_BYTES))
        }
        StoredResult::Value(_) | StoredResult::Tombstone(_) => Ok(()),
    }
}

impl Store for DynamoDbStore {
    async fn claim(&self, key: &RecordKey, request: &Claim) -> Result<ClaimAnswer, StoreError> {
        let (key, request) = (key.clone(), request.clone());
        self.ask(|table| async move {
            table.names().check(&key)?;
            // Most keys are new: that there is no item is the first guess, and not asked first.
            let decide =
                |record: Option<&Record>, now| protocol::claim(record, Fence::default(), &request, now);
            let mut answer = table.apply_from(None, &key, decide).await?;
            if let ClaimAnswer::Replay(replay) = &mut answer {
                // The end that was written, as in a list: a reader adds the skew once.
                replay.expires_at = replay.expires_at.map(|end| end.before(table.skew()));
            }
            Ok(answer)
        })
        .await
    }

    async fn renew(&self, key: &RecordKey, request: &Renew) -> Result<RenewAnswer, StoreError> {
        let (key, request) = (key.clone(), *request);
        self.ask(|table| async move {
            table.apply(&key, |record, now| protocol::renew(record, &request, now)).await
        })
        .await
    }

    async fn record_step(
        &self,
        key: &RecordKey,
        request: &RecordStep,
    ) -> Result<RecordStepAnswer, StoreError> {
        check_size(&request.step.result)?;
        let (key, request) = (key.clone(), request.clone());
        self.ask(|table| async move { table.record_step(&key, &request).await }).await
    }

    async fn complete(&self, key: &RecordKey, request: &Complete) -> Result<CompleteAnswer, StoreError> {
        check_size(&request.result)?;
        let (key, request) = (key.clone(), request.clone());
        self.ask(|table| async move { table.complete(&key, &request).await }).await
    }

    async fn release(&self, key: &RecordKey, request: &Release) -> Result<ReleaseAnswer, StoreError> {
        let (key, request) = (key.clone(), *request);
        self.ask(|table| async move {
            table.apply(&key, |record, now| protocol::release(record, &request, now)).await
        })
        .await
    }

    async fn resolve(&self, key: &RecordKey, resolution: &Resolution) -> Result<ResolveAnswer, StoreError> {
        if let Some((_, result)) = resolution.recorded() {
            check_size(result)?;
        }
        let (key, resolution) = (key.clone(), resolution.clone());
        self.ask(|table| async move {
            table.apply(&key, |record, now| protocol::resolve(record, &resolution, now)).await
        })
        .await
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        let key = key.clone();
        self.ask(|table| async move { table.forget(&key).await }).await
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        let key = key.clone();
        self.ask(|table| async move { table.live(&key).await }).await
    }

    /// Reads the whole table and deletes what DynamoDB's own time to live has not yet deleted: it is
    /// never needed, costs what a scan costs, and takes as long.
    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        self.table.check_names()?;
        let table = self.table.clone();
        own_runtime::apart(Box::pin(async move { table.purge(limit).await })).await
    }

    /// Scans the table: it costs what a scan costs, a read unit for each 4 KiB that it looks at.
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
        f.debug_struct("DynamoDbStore").field("table", &self.table.names().table).finish_non_exhaustive()
    }
}
