//! Beside `#[tracing::instrument]`, on either side of it.
use idem::{Error, MemoryStore, idempotent};

#[tracing::instrument(skip(store))]
#[idempotent(key = "{id}", store = store)]
async fn inside(store: &MemoryStore, id: u64) -> Result<u64, Error> {
    Ok(id)
}

#[idempotent(key = "{id}", store = store)]
#[tracing::instrument(skip_all, fields(id))]
async fn outside(store: &MemoryStore, id: u64) -> Result<u64, Error> {
    Ok(id)
}

pub(super) fn main() {
    let store = MemoryStore::new();
    drop(inside(&store, 1));
    drop(outside(&store, 1));
}
