//! A claim that is committed with the effects cannot be done without.
use idem::{Error, MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store, transaction = tx, fail_open)]
async fn pay(store: &MemoryStore, tx: &mut Vec<u8>, id: u64) -> Result<u8, Error> {
    Ok(1)
}

fn main() {}
