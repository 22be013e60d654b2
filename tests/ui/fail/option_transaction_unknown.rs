//! A name that no argument has.
use idem::{Error, MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store, transaction = txn)]
async fn pay(store: &MemoryStore, tx: &mut Vec<u8>, id: u64) -> Result<u8, Error> {
    Ok(1)
}

fn main() {}
