//! Methods under `#[async_trait]`, with the associated types of the trait in the return type.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idem::{Error, MemoryStore, PostgresStore, Recovery, idempotent};
use sqlx::{Postgres, Transaction};

struct Failure;

impl From<Error> for Failure {
    fn from(_: Error) -> Self {
        Self
    }
}

#[async_trait]
trait Job {
    type Value;
    type Error;

    async fn by_reference(&self, id: u64) -> Result<Self::Value, Self::Error>;
    async fn by_value(self, id: Option<u64>) -> Result<Self::Value, Self::Error>;
    async fn detached(self: Arc<Self>, id: String) -> Result<Self::Value, Self::Error>;
    async fn recovered(&self, id: u64) -> Result<Self::Value, Self::Error>;
    async fn in_transaction(
        &self,
        store: &PostgresStore,
        tx: &mut Transaction<'_, Postgres>,
        id: u64,
    ) -> Result<Self::Value, Self::Error>;
}

struct App<T>(MemoryStore, T);

impl<T: Send + Sync> App<T> {
    async fn find(&self, _: &Recovery, _: &u64) -> Result<Option<u64>, Failure> {
        Ok(None)
    }
}

#[async_trait]
impl<T: Send + Sync + 'static> Job for App<T> {
    type Value = u64;
    type Error = Failure;

    #[idempotent(key = "{id}", scope = "reference", store = self.0)]
    async fn by_reference(&self, id: u64) -> Result<Self::Value, Self::Error> {
        let value: Self::Value = async { Err::<u64, Self::Error>(Failure) }.await?;
        Ok(id + value)
    }

    #[idempotent(
        key = "{id}",
        scope = "value",
        store = self.0,
        missing_key = "run",
        record_if = |value| *value > 1,
        retry_after = |_, attempt| Duration::from_secs(1) * attempt
    )]
    async fn by_value(self, id: Option<u64>) -> Result<Self::Value, Self::Error> {
        Ok(id.unwrap_or(1))
    }

    #[idempotent(key = "{id}", scope = "detached", store = self.0, detach)]
    async fn detached(self: Arc<Self>, id: String) -> Result<Self::Value, Self::Error> {
        Ok(id.len() as u64)
    }

    #[idempotent(key = "{id}", scope = "recovered", store = self.0, recover = Self::find)]
    async fn recovered(&self, id: u64) -> Result<Self::Value, Self::Error> {
        Ok(id)
    }

    #[idempotent(key = "{id}", scope = "transaction", store = store, transaction = tx)]
    async fn in_transaction(
        &self,
        store: &PostgresStore,
        tx: &mut Transaction<'_, Postgres>,
        id: u64,
    ) -> Result<Self::Value, Self::Error> {
        sqlx::query("SELECT 1").execute(&mut **tx).await.map_err(|_| Failure)?;
        Ok(id)
    }
}
