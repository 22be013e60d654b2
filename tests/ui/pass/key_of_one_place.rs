//! Text without braces is one place.
use idem::{Error, MemoryStore, idempotent};

struct Order {
    id: u64,
}

#[idempotent(key = "order.id", store = store)]
async fn charge(store: &MemoryStore, order: Order) -> Result<u64, Error> {
    Ok(order.id)
}

pub(super) fn main() {
    drop(charge(&MemoryStore::new(), Order { id: 1 }));
}
