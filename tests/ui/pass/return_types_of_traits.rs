//! Return types that are associated types or generic aliases, in traits, their impls and under `#[async_trait]`.
use idem::{Error, MemoryStore, idempotent};

use serde::Serialize;
use serde::de::DeserializeOwned;

type Fallible<T, E = Error> = Result<T, E>;
type Swapped<E, T> = Result<T, E>;

struct App {
    store: MemoryStore,
}

trait Job {
    type Outcome;
    type Value;

    async fn run(&self, id: u8) -> Self::Outcome;
    async fn value(&self, id: u8) -> Result<Self::Value, Error>;
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

#[async_trait::async_trait]
trait Boxed {
    type Outcome;
    type Value;

    async fn run_boxed(&self, id: u8) -> Self::Outcome;
    async fn value_boxed(&self, id: u8) -> Fallible<Self::Value>;
}

#[async_trait::async_trait]
impl Boxed for App {
    type Outcome = Fallible<u8>;
    type Value = String;

    #[idempotent(key = "{id}", store = self.store)]
    async fn run_boxed(&self, id: u8) -> Self::Outcome {
        Ok(id)
    }

    #[idempotent(key = "{id}", store = self.store)]
    async fn value_boxed(&self, id: u8) -> Fallible<Self::Value> {
        Ok(id.to_string())
    }
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

#[idempotent(key = "{id}", scope = "aliases", store = store)]
async fn aliases<T: Serialize + DeserializeOwned, E>(store: &MemoryStore, id: u8, value: T, _: E) -> Swapped<E, T>
where
    E: From<Error>,
{
    Ok(value)
}

pub(super) fn main() {
    let store = MemoryStore::new();
    let app = || App { store: MemoryStore::new() };
    drop(app().run(1));
    drop(app().value(1));
    drop(app().run_boxed(1));
    drop(app().value_boxed(1));
    drop(projected(&store, app(), 1));
    drop(values(&store, app(), 1));
    drop(aliases(&store, 1, 2_u8, Box::<dyn std::error::Error>::from("none")));
}
