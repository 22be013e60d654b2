use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: String) -> Result<u8, idem::Error> {
    id.push_str("x");
    Ok(1)
}

fn main() {}
