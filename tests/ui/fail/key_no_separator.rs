use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}{other}", store = store)]
async fn charge(store: &MemoryStore, id: u8, other: u8) -> Result<u8, idem::Error> {
    Ok(id + other)
}

fn main() {}
