use idem::{MemoryStore, idempotent};

#[idempotent(key = "{_}", store = store)]
async fn charge(store: &MemoryStore, _: u64) -> Result<u64, idem::Error> {
    Ok(1)
}

fn main() {}
