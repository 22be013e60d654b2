use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: impl idem::KeyPart) -> Result<u8, idem::Error> {
    Ok(1)
}

fn main() {}
