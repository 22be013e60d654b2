use idem::{MemoryStore, idempotent};

use std::collections::HashMap;

struct Order {
    id: u64,
    part: HashMap<u8, u8>,
}

#[idempotent(key = "{order.part}", store = store)]
async fn charge(store: &MemoryStore, order: &Order) -> Result<u64, idem::Error> {
    Ok(order.id)
}

fn main() {}
