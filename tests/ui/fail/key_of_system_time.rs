use idem::{MemoryStore, idempotent};

use std::time::SystemTime;

struct Order {
    id: u64,
    part: SystemTime,
}

#[idempotent(key = "{order.part}", store = store)]
async fn charge(store: &MemoryStore, order: &Order) -> Result<u64, idem::Error> {
    Ok(order.id)
}

fn main() {}
