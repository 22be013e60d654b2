use idem::{MemoryStore, idempotent};

struct Order {
    id: u64,
}

#[idempotent(key = "order/{order.idd}", store = store)]
async fn charge(store: &MemoryStore, order: Order) -> Result<u64, idem::Error> {
    Ok(order.id)
}

fn main() {}
