use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", store = MemoryStore::new())]
async fn charge() -> Result<u64, idem::Error> {
    drop(MemoryStore::new());
    Ok(1)
}

fn main() {}
