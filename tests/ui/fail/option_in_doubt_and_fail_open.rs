use idem::{MemoryStore, idempotent};

#[idempotent(on_crash = "in_doubt", fail_open, key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}

fn main() {}
