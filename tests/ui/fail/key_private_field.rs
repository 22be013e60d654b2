use idem::{MemoryStore, idempotent};

mod orders {
    pub struct Order {
        id: u64,
    }

    impl Order {
        pub fn number(&self) -> u64 {
            self.id
        }
    }
}

use orders::Order;

#[idempotent(key = "{order.id}", store = store)]
async fn charge(store: &MemoryStore, order: Order) -> Result<u64, idem::Error> {
    Ok(order.number())
}

fn main() {}
