use idem::{MemoryStore, idempotent};

struct Order {
    id: u64,
}

impl Order {
    fn number(&self) -> u64 {
        self.id
    }
}

#[idempotent(key = "{order.number}", store = store)]
async fn charge(store: &MemoryStore, order: Order) -> Result<u64, idem::Error> {
    Ok(order.number())
}

fn main() {}
