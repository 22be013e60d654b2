use idem::{MemoryStore, idempotent};

struct Failure;

#[idempotent(key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, Failure> {
    Ok(id)
}

fn main() {}
