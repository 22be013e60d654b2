//! The transaction stays the caller's.
use idem::{Error, MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store, transaction = tx)]
async fn pay(store: &MemoryStore, tx: Vec<u8>, id: u64) -> Result<u8, Error> {
    Ok(1)
}

fn main() {}
