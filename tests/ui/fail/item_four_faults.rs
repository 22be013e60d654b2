use idem::{MemoryStore, idempotent};

struct Receipt(u8);

struct Failure;

#[idempotent(key = "{id}", store = id)]
async fn charge(store: &MemoryStore, id: u8) -> Result<Receipt, Failure> {
    Ok(Receipt(id))
}

fn main() {}
