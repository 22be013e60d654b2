use idem::{MemoryStore, idempotent};

#[idempotent(detach, key = "{id}", store = MemoryStore::new())]
async fn charge(id: Option<&str>) -> Result<bool, idem::Error> {
    Ok(id.is_some())
}

fn main() {}
