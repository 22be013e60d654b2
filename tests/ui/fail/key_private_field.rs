use idem::{MemoryStore, idempotent};

mod orders {
    pub struct Order {
        id: u64,
    }
}

use orders::Order;

#[idempotent(key = "{order.id}", store = store)]
async fn charge(store: &MemoryStore, order: Order) -> Result<u64, idem::Error> {
    Ok(1)
}

fn main() {}
