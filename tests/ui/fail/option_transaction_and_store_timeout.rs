//! The statements run on the connection of the caller.
use idem::{Error, MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store, transaction = tx, store_timeout = "2s")]
async fn pay(store: &MemoryStore, tx: &mut Vec<u8>, id: u64) -> Result<u8, Error> {
    Ok(1)
}

fn main() {}
