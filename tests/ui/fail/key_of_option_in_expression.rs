use idem::{MemoryStore, idempotent};

#[idempotent(key = (id, name), store = store)]
async fn charge(store: &MemoryStore, id: u8, name: Option<&str>) -> Result<bool, idem::Error> {
    Ok(name.is_some())
}

fn main() {}
