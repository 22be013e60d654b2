use idem::{Error, MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store)]
async fn charge(store: Option<&MemoryStore>, id: u8) -> Result<u8, Error> {
    Ok(id)
}

fn main() {}
