//! What is rolled back leaves no attempt to count.
use idem::{Error, MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store, transaction = tx, max_attempts = 3)]
async fn pay(store: &MemoryStore, tx: &mut Vec<u8>, id: u64) -> Result<u8, Error> {
    Ok(1)
}

fn main() {}
