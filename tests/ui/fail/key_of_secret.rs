use idem::{MemoryStore, idempotent};

use secrecy::SecretString;

struct Order {
    id: u64,
    part: SecretString,
}

#[idempotent(key = "{order.part}", store = store)]
async fn charge(store: &MemoryStore, order: &Order) -> Result<u64, idem::Error> {
    Ok(order.id)
}

fn main() {}
