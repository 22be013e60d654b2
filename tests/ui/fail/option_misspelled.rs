use idem::{MemoryStore, idempotent};

#[idempotent(tll = "24h", key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}

fn main() {}
