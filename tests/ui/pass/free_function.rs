//! A function with a template over one argument.
use idem::{Error, MemoryStore, idempotent};

#[idempotent(key = "order/{id}", store = store)]
async fn charge(store: &MemoryStore, id: u64) -> Result<u64, Error> {
    Ok(id)
}

pub(super) fn main() {
    drop(charge(&MemoryStore::new(), 1));
}
