//! Return types that are aliases or associated types, also in traits and their impls; errors that are boxes.
use idem::{Error, MemoryStore, idempotent};

use serde::Serialize;
use serde::de::DeserializeOwned;

type Fallible<T> = std::result::Result<T, Error>;
type Swapped<E, T> = Result<T, E>;

mod other {
    pub(super) type Result<T> = super::Fallible<T>;
}

trait Job {
    type Outcome;
    type Value;

    async fn run(&self, id: u8) -> Self::Outcome;
    async fn value(&self, id: u8) -> Result<Self::Value, Error>;
}

struct App {
    store: MemoryStore,
}

impl Job for App {
    type Outcome = Result<u8, Error>;
    type Value = u8;

    #[idempotent(key = "{id}", store = self.store)]
    async fn run(&self, id: u8) -> Self::Outcome {
        Ok(id)
    }

    #[idempotent(key = "{id}", store = self.store)]
    async fn value(&self, id: u8) -> Result<Self::Value, Error> {
        if id == 0 {
            return Ok(1);
        }
        Ok(id)
    }
}

#[idempotent(key = "{id}", store = store)]
async fn alias_in_module(store: &MemoryStore, id: u8) -> other::Result<Vec<Option<String>>> {
    Ok(vec![])
}

#[idempotent(key = "{id}", store = store)]
async fn boxed(store: &MemoryStore, id: u8) -> Result<[u8; 3], Box<dyn std::error::Error + Send + Sync>> {
    Err("no".into())
}

#[idempotent(key = "{id}", scope = "projected", store = store)]
async fn projected<T>(store: &MemoryStore, job: T, id: u8) -> <T as Job>::Outcome
where
    T: Job<Outcome = Result<u8, Error>>,
{
    job.run(id).await
}

#[idempotent(key = "{id}", scope = "values", store = store)]
async fn values<T: Job>(store: &MemoryStore, job: T, id: u8) -> Fallible<T::Value>
where
    T::Value: Serialize + DeserializeOwned,
{
    job.value(id).await
}

#[idempotent(key = "{id}", scope = "swapped", store = store)]
async fn swapped<T: Serialize + DeserializeOwned, E>(
    store: &MemoryStore,
    id: u8,
    value: T,
    _: E,
) -> Swapped<E, T>
where
    E: From<Error>,
{
    Ok(value)
}
