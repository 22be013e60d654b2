use idem::{MemoryStore, idempotent};

struct Order {
    id: u64,
    name: String,
}

impl Order {
    fn number(&self) -> u64 {
        self.id
    }

    fn into_name(self) -> String {
        self.name
    }
}

#[idempotent(key = "{Order::id}", store = store)]
async fn charge(store: &MemoryStore, order: Order) -> Result<u64, idem::Error> {
    Ok(order.number())
}

fn main() {}
