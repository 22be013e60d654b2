//! A function that calls itself.
use idem::{Error, MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store)]
async fn countdown(store: &MemoryStore, id: u64) -> Result<u64, Error> {
    if id == 0 { Ok(0) } else { Box::pin(countdown(store, id - 1)).await }
}

pub(super) fn main() {
    drop(countdown(&MemoryStore::new(), 3));
}
