use idem::{MemoryStore, idempotent};

struct Order {
    id: u64,
    part: Box<f32>,
}

#[idempotent(key = "{order.part}", store = store)]
async fn charge(store: &MemoryStore, order: &Order) -> Result<u64, idem::Error> {
    Ok(order.id)
}

fn main() {}
