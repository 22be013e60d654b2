use idem::{MemoryStore, idempotent};

use std::path::PathBuf;

struct Order {
    id: u64,
    part: PathBuf,
}

#[idempotent(key = "{order.part}", store = store)]
async fn charge(store: &MemoryStore, order: &Order) -> Result<u64, idem::Error> {
    Ok(order.id)
}

fn main() {}
