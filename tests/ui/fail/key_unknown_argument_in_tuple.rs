use idem::{MemoryStore, idempotent};

#[idempotent(key = (id, tenant), store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}

fn main() {}
