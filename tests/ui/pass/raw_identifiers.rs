//! Names that are keywords.
use idem::{Error, MemoryStore, idempotent};

struct Order {
    r#match: u8,
}

#[idempotent(key = "{type}/{order.match}/{order.r#match}", store = r#ref)]
async fn r#loop(r#ref: &MemoryStore, r#type: u8, order: &Order) -> Result<u8, Error> {
    Ok(r#type + order.r#match)
}

pub(super) fn main() {
    drop(r#loop(&MemoryStore::new(), 1, &Order { r#match: 1 }));
}
