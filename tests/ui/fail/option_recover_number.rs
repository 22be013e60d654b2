use idem::{Error, MemoryStore, idempotent};

#[idempotent(recover = 3, key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u64) -> Result<u64, Error> {
    Ok(id)
}

fn main() {}
