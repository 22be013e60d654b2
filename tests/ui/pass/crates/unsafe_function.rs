//! An unsafe function stays one.
use idem::{Error, MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store)]
async unsafe fn charge(store: &MemoryStore, id: u64) -> Result<u64, Error> {
    Ok(id)
}

fn main() {
    let _ = charge;
}
