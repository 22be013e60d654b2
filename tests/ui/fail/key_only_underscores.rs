use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", store = MemoryStore::new())]
async fn charge(_: &MemoryStore, _: u64) -> Result<u64, idem::Error> {
    Ok(1)
}

fn main() {}
