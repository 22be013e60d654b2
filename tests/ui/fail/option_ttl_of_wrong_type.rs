use idem::{MemoryStore, idempotent};

#[idempotent(ttl = std::mem::size_of::<u8>(), key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}

fn main() {}
