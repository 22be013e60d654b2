//! Visibility, docs and other attributes stay where they were.
use idem::{Error, MemoryStore, idempotent};

/// Charges.
#[must_use = "await it"]
#[idempotent(key = "{id}", store = store)]
#[inline]
pub(crate) async fn charge(store: &MemoryStore, id: u64) -> Result<u64, Error> {
    Ok(id)
}

pub(super) fn main() {
    drop(charge(&MemoryStore::new(), 1));
}
