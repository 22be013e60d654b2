use idem::{MemoryStore, idempotent};

struct Order {
    id: u64,
    name: String,
}

impl Order {
    fn into_name(self) -> String {
        self.name
    }
}

#[idempotent(key = "order/{order.into_name()}", store = store)]
async fn charge(store: &MemoryStore, order: Order) -> Result<u64, idem::Error> {
    Ok(order.id)
}

fn main() {}
