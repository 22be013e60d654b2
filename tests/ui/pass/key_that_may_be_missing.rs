//! An `Option` in a key, with what its absence means.
use idem::{Error, MemoryStore, idempotent};

struct Order {
    part: Option<String>,
}

#[idempotent(key = "{id}/{order.part}", missing_key = "reject", store = store)]
async fn charge(store: &MemoryStore, id: u64, order: &Order) -> Result<u64, Error> {
    Ok(id)
}

#[idempotent(key = (id, name), missing_key = "run", store = store)]
async fn refund(store: &MemoryStore, id: &Option<u64>, name: Option<&str>) -> Result<bool, Error> {
    Ok(id.is_some() && name.is_some())
}

pub(super) fn main() {
    let store = MemoryStore::new();
    drop(charge(&store, 1, &Order { part: None }));
    drop(refund(&store, &None, None));
}
