//! Aliases, generic values, units, and errors that are boxes.
use idem::{Error, MemoryStore, idempotent};

type Fallible<T = ()> = std::result::Result<T, Error>;

mod other {
    pub(super) type Result<T> = super::Fallible<T>;
}

#[idempotent(key = "{id}", store = store)]
async fn alias(store: &MemoryStore, id: u8) -> Fallible {
    Ok(())
}

#[idempotent(key = "{id}", store = store)]
async fn alias_in_module(store: &MemoryStore, id: u8) -> other::Result<Vec<Option<String>>> {
    Ok(vec![])
}

#[idempotent(key = "{id}", store = store)]
async fn boxed(store: &MemoryStore, id: u8) -> Result<[u8; 3], Box<dyn std::error::Error + Send + Sync>> {
    Err("no".into())
}

#[idempotent(key = "{id}", scope = "generic", store = store)]
async fn generic<T>(store: &MemoryStore, id: u8, value: T) -> Result<T, Error>
where
    T: serde::Serialize + serde::de::DeserializeOwned,
{
    Ok(value)
}

pub(super) fn main() {
    let store = MemoryStore::new();
    drop(alias(&store, 1));
    drop(alias_in_module(&store, 1));
    drop(boxed(&store, 1));
    drop(generic(&store, 1, 2));
}
