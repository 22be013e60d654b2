use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: String) -> Result<usize, idem::Error> {
    drop(id);
    Ok(id.len())
}

fn main() {}
