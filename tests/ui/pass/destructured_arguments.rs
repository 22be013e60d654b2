//! Patterns, as handlers of frameworks have them.
use idem::{Error, MemoryStore, idempotent};

struct State<T>(T);

struct Order {
    id: u64,
    amount: u32,
}

#[idempotent(key = "{id}/{left}", store = store)]
async fn charge(
    State(store): State<MemoryStore>,
    Order { id, amount: total }: Order,
    (left, _): (u8, u8),
    _: String,
) -> Result<u64, Error> {
    Ok(id + u64::from(total) + u64::from(left))
}
