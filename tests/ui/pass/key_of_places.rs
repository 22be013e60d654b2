//! Fields, tuple fields, methods, spaces and escaped braces.
use idem::{Error, MemoryStore, idempotent};

struct Order {
    line: (u8, Item),
}

struct Item {
    name: String,
}

impl Item {
    fn name(&self) -> &str {
        &self.name
    }
}

#[idempotent(key = "{{x}}/{ order.line.0 }/{order.line.1.name}:{order.line.1.name()}", store = store)]
async fn charge(store: &MemoryStore, order: &Order) -> Result<u8, Error> {
    Ok(1)
}

pub(super) fn main() {
    let order = Order { line: (1, Item { name: String::new() }) };
    drop(charge(&MemoryStore::new(), &order));
}
