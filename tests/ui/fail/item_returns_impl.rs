use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<impl Copy, idem::Error> {
    Ok(id)
}

fn main() {}
