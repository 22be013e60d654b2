use idem::{MemoryStore, idempotent};

#[derive(serde::Serialize)]
struct Receipt(u8);

#[idempotent(key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<Receipt, idem::Error> {
    Ok(Receipt(id))
}

fn main() {}
