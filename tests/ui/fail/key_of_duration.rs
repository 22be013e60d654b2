use idem::{MemoryStore, idempotent};

use std::time::Duration;

struct Order {
    id: u64,
    part: Duration,
}

#[idempotent(key = "{order.part}", store = store)]
async fn charge(store: &MemoryStore, order: &Order) -> Result<u64, idem::Error> {
    Ok(order.id)
}

fn main() {}
