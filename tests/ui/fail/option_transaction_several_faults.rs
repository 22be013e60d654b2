//! All at once.
use idem::{Error, MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store, transaction = tx, detach, fail_open, on_crash = "in_doubt", wait = "1h")]
async fn pay(store: MemoryStore, tx: Vec<u8>, id: u64) -> Result<u8, Error> {
    Ok(1)
}

fn main() {}
